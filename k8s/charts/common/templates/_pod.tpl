{{/*
The pod of a service. The spec of a chart may name: service, port, healthPort, extraPorts, env, volumes, mounts,
initContainers, command, args, probes (false: none), subdomain, restartPolicy, shm, hostUsers, podSecurityContext,
serviceSuffixes (of Services besides the two that every service has).
Extra containers, volumes and objects that a user passes in go through unchanged.
*/}}

{{- define "common.podTemplate" -}}
{{- $ctx := .ctx -}}
{{- $spec := .spec -}}
{{- include "common.guards" $ctx -}}
metadata:
  labels:
    {{- include "common.podLabels" $ctx | nindent 4 }}
    {{- with $ctx.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $ctx.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ default $ctx.Chart.Name $spec.containerName }}
    checksum/config: {{ include "common.config" $ctx | sha256sum }}
    {{- with include "common.secretData" $ctx | trim }}
    checksum/secret: {{ sha256sum . }}
    {{- end }}
    {{- with $spec.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $ctx.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with include "common.imagePullSecrets" $ctx | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  serviceAccountName: {{ include "common.serviceAccountName" $ctx }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "common.grace" $ctx }}
  securityContext:
    {{- toYaml (mergeOverwrite (deepCopy $ctx.Values.podSecurityContext) (default (dict) $spec.podSecurityContext)) | nindent 4 }}
  {{- if has "false" (list (toString $ctx.Values.hostUsers) (toString $spec.hostUsers)) }}
  hostUsers: false
  {{- end }}
  {{- with $spec.subdomain }}
  subdomain: {{ . }}
  {{- end }}
  {{- with $spec.restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with $ctx.Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $ctx.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $ctx.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with concat (include "common.acceleratorTolerations" $ctx | fromYamlArray) (default (list) $ctx.Values.tolerations) }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $ctx.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $ctx.Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if not (hasKey . "labelSelector") }}
      labelSelector:
        matchLabels:
          {{- include "common.selectorLabels" $ctx | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- with concat (default (list) $spec.initContainers) (default (list) $ctx.Values.initContainers) }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - {{ include "common.container" . | nindent 6 | trim }}
    {{- with $ctx.Values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "common.volumes" . | nindent 4 }}
{{- end -}}

{{- define "common.container" -}}
{{- $ctx := .ctx -}}
{{- $spec := .spec -}}
name: {{ default $ctx.Chart.Name $spec.containerName }}
image: {{ include "common.image" $ctx }}
imagePullPolicy: {{ $ctx.Values.image.pullPolicy }}
{{- with default (default $spec.command $ctx.Values.command) $spec.workerCommand }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
args:
  {{- with default (default $spec.args $ctx.Values.args) $spec.workerArgs }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  - --config
  - /etc/webagent/config/config.json
  {{- end }}
  {{- with $ctx.Values.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- include "common.env" . | nindent 2 }}
{{- with concat (default (list) $spec.envFrom) (default (list) $ctx.Values.extraEnvFrom) }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: grpc
    containerPort: {{ $spec.port }}
  - name: metrics
    containerPort: {{ $ctx.Values.metrics.port }}
  {{- if include "common.tls" $ctx }}
  - name: health
    containerPort: {{ $spec.healthPort }}
  {{- end }}
  {{- with $spec.extraPorts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if ne (toString $spec.probes) "false" }}
{{- include "common.probes" . }}
{{- end }}
{{- with $ctx.Values.lifecycle }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- include "common.resources" $ctx | nindent 2 }}
securityContext:
  {{- toYaml $ctx.Values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "common.mounts" . | nindent 2 }}
{{- end -}}

{{- define "common.env" -}}
- name: HOME
  value: /tmp
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
{{- with .spec.env }}
{{ toYaml . }}
{{- end }}
{{- with .ctx.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Kubernetes' gRPC probes speak plaintext only: with TLS on they ask the health port. "" is alive, the service's name is
ready; the startup probe waits for ready, so that nothing is restarted because it loads slowly.
*/}}
{{- define "common.probes" -}}
{{- $port := ternary .spec.healthPort .spec.port (eq (include "common.tls" .ctx) "true") -}}
{{- $probes := .ctx.Values.probes -}}
{{- range $kind, $service := dict "startup" .spec.service "readiness" .spec.service "liveness" "" }}
{{- $probe := get $probes $kind }}
{{- if $probe.custom }}
{{ $kind }}Probe:
  {{- toYaml $probe.custom | nindent 2 }}
{{- else if $probe.enabled }}
{{ $kind }}Probe:
  grpc:
    port: {{ $port }}
    service: {{ $service | quote }}
  periodSeconds: {{ $probe.periodSeconds }}
  timeoutSeconds: {{ $probe.timeoutSeconds }}
  failureThreshold: {{ $probe.failureThreshold }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What `accelerator` asks for, under what `resources` says itself. To Helm 3 a default of 0 is no zero before `int`. */}}
{{- define "common.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $kind := dig "kind" "cpu" (default (dict) .Values.accelerator) -}}
{{- if ne $kind "cpu" -}}
{{- $name := default (get (dict "nvidia" "nvidia.com/gpu" "amd" "amd.com/gpu" "gaudi" "habana.ai/gaudi") $kind) .Values.accelerator.resourceName -}}
{{- $count := default (int (include (printf "%s.accelerators" .Chart.Name) .)) (int .Values.accelerator.count) -}}
{{- $resources = merge $resources (dict "limits" (dict $name (toString $count))) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "common.acceleratorTolerations" -}}
{{- $kind := dig "kind" "cpu" (default (dict) .Values.accelerator) -}}
{{- if ne $kind "cpu" }}
- key: {{ default (get (dict "nvidia" "nvidia.com/gpu" "amd" "amd.com/gpu" "gaudi" "habana.ai/gaudi") $kind) .Values.accelerator.resourceName }}
  operator: Exists
  effect: NoSchedule
{{- else }}
[]
{{- end }}
{{- end -}}

{{- define "common.volumes" -}}
{{- $ctx := .ctx -}}
- name: config
  configMap:
    name: {{ include "common.fullname" $ctx }}
- name: tmp
  emptyDir:
    sizeLimit: {{ $ctx.Values.tmp.size }}
{{- with $ctx.Values.shm }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .size }}
{{- end }}
{{- if include "common.tls" $ctx }}
- name: tls
  secret:
    secretName: {{ include "common.tlsSecret" $ctx }}
{{- end }}
{{- with include "common.tokensSecret" $ctx }}
- name: tokens
  secret:
    secretName: {{ . }}
    items:
      - key: tokens.yaml
        path: tokens.yaml
{{- end }}
{{- with include "common.clientTokenSources" . | trim }}
- name: client
  projected:
    sources:
      {{- . | nindent 6 }}
{{- end }}
{{- with $ctx.Values.queue }}
{{- with .credentialsSecret.name }}
- name: queue
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .tlsSecret }}
- name: queue-tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- end }}
{{- with $ctx.Values.storage }}
- name: storage
  {{- if include "common.claim" $ctx }}
  persistentVolumeClaim:
    claimName: {{ include "common.claim" $ctx }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .size }}
  {{- end }}
{{- end }}
{{- with .spec.volumes }}
{{ toYaml . }}
{{- end }}
{{- with $ctx.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "common.mounts" -}}
{{- $ctx := .ctx -}}
- name: config
  mountPath: /etc/webagent/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with $ctx.Values.shm }}
- name: shm
  mountPath: /dev/shm
{{- end }}
{{- if include "common.tls" $ctx }}
- name: tls
  mountPath: /etc/webagent/tls
  readOnly: true
{{- end }}
{{- if include "common.tokensSecret" $ctx }}
- name: tokens
  mountPath: /etc/webagent/tokens
  readOnly: true
{{- end }}
{{- if include "common.clientTokenSources" . | trim }}
- name: client
  mountPath: /etc/webagent/client
  readOnly: true
{{- end }}
{{- with $ctx.Values.queue }}
{{- if .credentialsSecret.name }}
- name: queue
  mountPath: /etc/webagent/queue
  readOnly: true
{{- end }}
{{- if .tlsSecret }}
- name: queue-tls
  mountPath: /etc/webagent/queue-tls
  readOnly: true
{{- end }}
{{- end }}
{{- with $ctx.Values.storage }}
- name: storage
  mountPath: {{ .mountPath }}
{{- end }}
{{- with .spec.mounts }}
{{ toYaml . }}
{{- end }}
{{- with $ctx.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* One file per service that is called with a token. */}}
{{- define "common.clientTokenSources" -}}
{{- range $name, $client := default (dict) .ctx.Values.clients }}
{{- if $client.tokenSecret.name }}
- secret:
    name: {{ $client.tokenSecret.name }}
    items:
      - key: {{ $client.tokenSecret.key }}
        path: {{ $name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A pod of a hook or of preparation: the service's image, small, and as confined. dict ctx, name, script, env, mounts */}}
{{- define "common.scriptContainer" -}}
{{- $ctx := .ctx -}}
name: {{ .name }}
image: {{ include "common.image" $ctx }}
imagePullPolicy: {{ $ctx.Values.image.pullPolicy }}
command: [python, -c]
args:
  - |
    {{- regexReplaceAll "(?m)^# ruff: .*\\n" .script "" | nindent 4 }}
{{- with .env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml (default (dict "requests" (dict "cpu" "50m" "memory" "256Mi") "limits" (dict "memory" "512Mi")) .resources) | nindent 2 }}
securityContext:
  {{- toYaml $ctx.Values.securityContext | nindent 2 }}
{{- with .mounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
