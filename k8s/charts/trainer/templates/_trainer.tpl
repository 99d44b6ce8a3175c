{{/*
What is particular to the trainer. Rank 0, on the first pod, serves; the other ranks follow it. In mode job the pods run
`run` and end; in mode service they wait for StartRun. Probes ask the first pod only, so several pods have none.
*/}}

{{- define "trainer.accelerators" -}}
1
{{- end -}}

{{- define "trainer.ranks" -}}
{{- $devices := ternary 1 (max 1 (int .Values.accelerator.count)) (eq .Values.accelerator.kind "cpu") -}}
{{- default $devices (int .Values.ranksPerNode) -}}
{{- end -}}

{{/* Jobs cannot be changed: another configuration is another Job, which goes on from the run's newest checkpoint. */}}
{{- define "trainer.jobName" -}}
{{- $content := printf "%s%s%s" (toJson .Values) (include "common.image" .) .Chart.Version -}}
{{- printf "%s-%s" (include "common.fullname" . | trunc 36 | trimSuffix "-") (sha256sum $content | trunc 8) -}}
{{- end -}}

{{/* The name of a pod: dict ctx, index. */}}
{{- define "trainer.pod" -}}
{{- $values := .ctx.Values -}}
{{- $name := include "trainer.jobName" .ctx -}}
{{- $subdomain := printf "%s-headless" (include "common.fullname" .ctx) -}}
{{- if eq $values.mode "service" -}}
{{- $name = include "common.fullname" .ctx -}}
{{- else if eq $values.launcher "jobset" -}}
{{- $subdomain = $name -}}
{{- $name = printf "%s-trainer-0" $name -}}
{{- end -}}
{{- printf "%s-%s.%s.%s.svc" $name .index $subdomain .ctx.Release.Namespace -}}
{{- end -}}

{{- define "trainer.firstPod" -}}
{{- include "trainer.pod" (dict "ctx" . "index" "0") -}}
{{- end -}}

{{- define "trainer.spec" -}}
{{- $ranks := int (include "trainer.ranks" .) -}}
{{- $several := gt (int .Values.nodes) 1 -}}
{{- $job := eq .Values.mode "job" -}}
service: webagent.trainer.v1.TrainerService
port: 50055
healthPort: 50085
publishNotReadyAddresses: true
{{- if $several }}
callSelector:
  {{ ternary "batch.kubernetes.io/job-completion-index" "apps.kubernetes.io/pod-index" $job }}: "0"
{{- end }}
{{- if not (and $job (has .Values.launcher (list "jobset" "trainjob"))) }}
# JobSet gives its pods a name of its own.
subdomain: {{ include "common.fullname" . }}-headless
{{- end }}
{{- if $job }}
restartPolicy: Never
{{- end }}
{{- if or $several $job }}
# A Job's pod ends by itself; of several pods only the first one answers.
probes: false
{{- end }}
{{- if and $job (eq .Values.launcher "trainjob") }}
# Kubeflow's controller says by PET_ variables who takes part, to the container of this name.
containerName: node
command: [tini, "--", torchrun, --shutdown-timeout={{ .Values.drainSeconds }}, -m, webagent_trainer]
{{- else if or $several (gt $ranks 1) }}
command:
  - tini
  - "--"
  - sh
  - -c
  - |
    {{- include "trainer.torchrun" (dict "ctx" . "ranks" $ranks) | nindent 4 }}
  - webagent-trainer
{{- end }}
env:
  - name: NODE_INDEX
    valueFrom:
      fieldRef:
        {{- if $job }}
        fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
        {{- else }}
        fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
        {{- end }}
  {{- with include "common.queueEnv" (dict "ctx" . "prefix" "WEBAGENT_TRAINER") | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- $envFrom := list }}
{{- with .Values.payloads.existingSecret }}
{{- $envFrom = list (dict "secretRef" (dict "name" .)) }}
{{- end }}
{{- with $envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and .Values.model.prepare (not .Values.model.uri) (not .Values.command) }}
initContainers:
  - {{ include "common.prepareContainer" (dict "ctx" . "image" (include "common.imageOf" (dict "ctx" . "image" .Values.model.prepareImage))) | nindent 4 | trim }}
{{- else if or .Values.model.uri (and $job (not .Values.command)) }}
initContainers:
  - {{ include "common.modelContainer" (dict "ctx" . "envFrom" $envFrom "wait" .Values.model.waitSeconds) | nindent 4 | trim }}
{{- end }}
{{- if $several }}
ingress:
  - from:
      - podSelector:
          matchLabels:
            {{- include "common.selectorLabels" . | nindent 12 }}
{{- end }}
egress:
  {{- include "common.egressToQueue" . | nindent 2 }}
  {{- if $several }}
  - to:
      - podSelector:
          matchLabels:
            {{- include "common.selectorLabels" . | nindent 12 }}
  {{- end }}
{{- end -}}

{{/*
The arguments of the container follow as $@. When a rank fails, all start anew, from the checkpoint. torchrun numbers pods
in the order of their addresses: names, of which that ending in -0 is the first, and not IP addresses.
*/}}
{{- define "trainer.torchrun" -}}
{{- $values := .ctx.Values -}}
{{- if gt (int $values.nodes) 1 -}}
[ "$NODE_INDEX" = 0 ] && first=true || first=false
exec python -m torch.distributed.run --nnodes={{ $values.nodes }} --nproc-per-node={{ .ranks }} \
  --max-restarts={{ $values.maxRestarts }} --shutdown-timeout={{ $values.drainSeconds }} --rdzv-id={{ $values.runId }} --rdzv-backend=c10d \
  --rdzv-endpoint={{ include "trainer.firstPod" .ctx }}:{{ $values.rendezvousPort }} \
  --rdzv-conf=is_host="$first",join_timeout=1800 \
  --local-addr="{{ include "trainer.pod" (dict "ctx" .ctx "index" "$NODE_INDEX") }}" -m webagent_trainer "$@"
{{- else -}}
exec python -m torch.distributed.run --standalone --nproc-per-node={{ .ranks }} \
  --max-restarts={{ $values.maxRestarts }} --shutdown-timeout={{ $values.drainSeconds }} -m webagent_trainer "$@"
{{- end -}}
{{- end -}}

{{- define "trainer.config" -}}
{{- $own := and .Values.storage.create (eq (include "common.claim" .) (include "common.fullname" .)) -}}
{{- if and (gt (int .Values.nodes) 1) $own (not (has "ReadWriteMany" .Values.storage.accessModes)) -}}
{{- fail "several nodes share one claim: storage.accessModes must hold ReadWriteMany" -}}
{{- end -}}
server:
  {{- include "common.serverConfig" (dict "ctx" . "port" 50055 "healthPort" 50085 "metrics" true) | nindent 2 }}
telemetry:
  {{- include "common.telemetryConfig" . | nindent 2 }}
queue:
  {{- include "common.queueConfig" . | nindent 2 }}
{{- if eq .Values.mode "job" }}
{{- if not .Values.run }}{{- fail "mode job needs run: what to train (mode service waits for StartRun)" }}{{- end }}
run:
  run_directory: {{ .Values.storage.mountPath }}/runs/{{ .Values.runId }}
  model: {{ .Values.model.path }}
  payloads:
    uri: {{ include "common.payloadsUri" . }}
  {{- $policies := include "common.storeUri" (dict "ctx" . "uri" .Values.policies.uri "name" "policies") }}
  {{- $publish := default (dict) .Values.run.publish }}
  {{- if not (hasPrefix "file://" $policies) }}
  {{- $publish = merge (dict "uri" $policies) $publish }}
  {{- end }}
  {{- with $publish }}
  publish:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- toYaml (omit .Values.run "run_directory" "model" "payloads" "publish") | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "trainer.alerts" -}}
{{- $series := include "common.series" . -}}
- alert: WebAgentInvalidShare
  expr: max(webagent_invalid_share{ {{- $series -}} }) > 0.2
  for: 5m
  severity: warning
  summary: More than a fifth of the newest episodes is INVALID; the infrastructure fails, not the policy.
- alert: WebAgentTrajectoriesWait
  expr: max(webagent_oldest_pending_seconds{ {{- $series }}, stream="TRAJECTORIES"}) > 1800
  for: 5m
  severity: warning
  summary: A trajectory has waited for half an hour; the trainer is stuck or gone.
- alert: WebAgentTrainerDeadLetters
  expr: max(webagent_dead_letters{ {{- $series -}} }) > 0
  for: 1m
  severity: warning
  summary: A message could not be used by anybody; it is kept in DEAD_LETTERS.
{{- end -}}

{{- define "trainer.panels" -}}
{{- $series := include "common.series" . -}}
- title: Share of INVALID episodes
  unit: percentunit
  expr: max(webagent_invalid_share{ {{- $series -}} })
- title: Oldest message waiting
  unit: s
  expr: max by (stream) (webagent_oldest_pending_seconds{ {{- $series -}} })
{{- end -}}
