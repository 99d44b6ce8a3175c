{{/* What is particular to inference: the model, the accelerator, a port for administration, the versions it follows. */}}

{{- define "inference.accelerators" -}}
{{- dig "engine" "tensor_parallel" 1 (default (dict) .Values.config) -}}
{{- end -}}

{{- define "inference.envFrom" -}}
{{- with .Values.objectStoreSecret }}
- secretRef:
    name: {{ . }}
{{- else }}
[]
{{- end }}
{{- end -}}

{{- define "inference.spec" -}}
service: webagent.inference.v1.InferenceService
port: 50052
healthPort: 50082
extraPorts:
  - name: admin
    containerPort: 50062
  {{- if .Values.face.enabled }}
  - name: face
    containerPort: 50072
  {{- end }}
serviceSuffixes: [-admin{{ if .Values.face.enabled }}, -face{{ end }}]
{{- if .Values.queue.enabled }}
{{- with include "common.queueEnv" (dict "ctx" . "prefix" "WEBAGENT_INFERENCE") | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}
envFrom:
  {{- include "inference.envFrom" . | nindent 2 }}
{{- if and .Values.model.path .Values.model.prepare (not .Values.model.uri) (not .Values.command) }}
initContainers:
  - {{ include "common.prepareContainer" (dict "ctx" . "image" (include "common.image" .)) | nindent 4 | trim }}
{{- else if and .Values.model.path .Values.model.uri }}
initContainers:
  - {{ include "common.modelContainer" (dict "ctx" . "envFrom" (include "inference.envFrom" . | fromYamlArray)) | nindent 4 | trim }}
{{- end }}
{{- if .Values.multinode.enabled }}
serviceSelector:
  leaderworkerset.sigs.k8s.io/worker-index: "0"
{{- end }}
ingress:
  {{- if .Values.face.enabled }}
  - from:
      - podSelector:
          matchLabels:
            app.kubernetes.io/part-of: webagent
      {{- with .Values.networkPolicy.clients }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - port: 50072
        protocol: TCP
  {{- end }}
  - from:
      {{- with .Values.networkPolicy.adminClients }}
      {{- toYaml . | nindent 6 }}
      {{- else }}
      # Who may label pods of this namespace may call it.
      - podSelector:
          matchLabels:
            webagent/admin-client-of: {{ include "common.fullname" . }}
      {{- end }}
    ports:
      - port: 50062
        protocol: TCP
  {{- if .Values.multinode.enabled }}
  - from:
      - podSelector:
          matchLabels:
            {{- include "common.selectorLabels" . | nindent 12 }}
  {{- end }}
egress:
  {{- if .Values.queue.enabled }}
  {{- include "common.egressToQueue" . | nindent 2 }}
  {{- end }}
  {{- if .Values.multinode.enabled }}
  - to:
      - podSelector:
          matchLabels:
            {{- include "common.selectorLabels" . | nindent 12 }}
  {{- end }}
{{- end -}}

{{- define "inference.config" -}}
server:
  {{- include "common.serverConfig" (dict "ctx" . "port" 50052 "healthPort" 50082 "metrics" true) | nindent 2 }}
admin:
  {{- include "common.serverConfig" (dict "ctx" . "port" 50062) | nindent 2 }}
telemetry:
  {{- include "common.telemetryConfig" . | nindent 2 }}
{{- with .Values.model.path }}
model:
  path: {{ . }}
{{- end }}
updates:
  staging: /tmp/weights
{{- if .Values.face.enabled }}
face:
  host: 0.0.0.0
  port: 50072
  {{- with omit (include "common.serverConfig" (dict "ctx" . "port" 50072) | fromYaml) "host" "port" "drain_seconds" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if .Values.queue.enabled }}
queue:
  {{- include "common.queueConfig" . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "inference.kedaTriggers" -}}
[]
{{- end -}}

{{- define "inference.alerts" -}}
{{- $series := include "common.series" . -}}
- alert: WebAgentPolicyVersionSkew
  expr: max(webagent_served_version{ {{- $series -}} }) - min(webagent_served_version{ {{- $series -}} }) > 0
  for: 10m
  severity: warning
  summary: Replicas have served different policy versions for ten minutes; the log of the one behind says why.
- alert: WebAgentInferenceRefuses
  expr: sum(rate(webagent_rpcs_total{ {{- $series }}, code="RESOURCE_EXHAUSTED"}[5m])) > 0
  for: 15m
  severity: warning
  summary: Requests are refused because the queue of a replica is full; add replicas of inference.
{{- end -}}

{{- define "inference.panels" -}}
{{- $series := include "common.series" . -}}
- title: Policy version served
  unit: short
  expr: max by (pod) (webagent_served_version{ {{- $series -}} })
- title: Replies refused per second
  unit: reqps
  expr: sum by (code) (rate(webagent_rpcs_total{ {{- $series }}, code!="OK"}[5m]))
{{- end -}}
