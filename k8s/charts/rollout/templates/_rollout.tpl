{{/* What is particular to rollout: whom it calls, and the queue that it takes requests from. */}}

{{- define "rollout.spec" -}}
service: webagent.rollout.v1.RolloutService
port: 50054
healthPort: 50084
{{- with include "common.queueEnv" (dict "ctx" . "prefix" "WEBAGENT_ROLLOUT") | trim }}
{{- if $.Values.queue.enabled }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.payloads.existingSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
egress:
  {{- include "common.egressTo" (list (dict "component" "env" "port" 50051) (dict "component" "inference" "port" 50052) (dict "component" "evaluator" "port" 50053)) | nindent 2 }}
  {{- if .Values.queue.enabled }}
  {{- include "common.egressToQueue" . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "rollout.client" -}}
{{- $name := include "common.sibling" (dict "release" .ctx.Release.Name "name" .name) -}}
{{- $client := get .ctx.Values.clients .name -}}
target: {{ default (printf "dns:///%s-headless.%s.svc:%v" $name .ctx.Release.Namespace .port) $client.target }}
{{- with include "common.clientConfig" (dict "ctx" .ctx "serverName" (default $name $client.serverName) "token" (ternary .name "" (ne $client.tokenSecret.name ""))) | trim }}
client:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "rollout.config" -}}
server:
  {{- include "common.serverConfig" (dict "ctx" . "port" 50054 "healthPort" 50084 "metrics" true) | nindent 2 }}
telemetry:
  {{- include "common.telemetryConfig" . | nindent 2 }}
{{- range $name, $port := dict "env" 50051 "inference" 50052 "evaluator" 50053 }}
{{ $name }}:
  {{- include "rollout.client" (dict "ctx" $ "name" $name "port" $port) | nindent 2 }}
{{- end }}
{{- if .Values.queue.enabled }}
queue:
  {{- include "common.queueConfig" . | nindent 2 }}
{{- end }}
payloads:
  uri: {{ include "common.payloadsUri" . }}
{{- end -}}

{{- define "rollout.kedaTriggers" -}}
{{- $global := default (dict) .Values.global -}}
{{- $own := printf "%s-headless.%s.svc.cluster.local:8222" (include "common.sibling" (dict "release" .Release.Name "name" "nats")) .Release.Namespace -}}
{{- $endpoint := default (default $own (dig "nats" "external" "monitoringEndpoint" "" $global)) .Values.queue.monitoringEndpoint -}}
{{- if .Values.queue.enabled }}
- type: nats-jetstream
  metadata:
    natsServerMonitoringEndpoint: {{ $endpoint | quote }}
    account: {{ default (dig "nats" "external" "account" "$G" $global) .Values.queue.account | quote }}
    stream: REQUESTS
    consumer: rollout
    lagThreshold: {{ .Values.queue.lagThreshold | quote }}
    activationLagThreshold: "0"
    useHttps: "false"
{{- else }}
[]
{{- end }}
{{- end -}}

{{- define "rollout.alerts" -}}
{{- $series := include "common.series" . -}}
- alert: WebAgentRequestsWait
  expr: max(webagent_oldest_pending_seconds{ {{- $series }}, stream="REQUESTS"}) > 900
  for: 5m
  severity: warning
  summary: A request has waited for a quarter of an hour; rollout, env or inference is too small or stuck.
- alert: WebAgentDeadLetters
  expr: max(webagent_dead_letters{ {{- $series -}} }) > 0
  for: 1m
  severity: warning
  summary: A message could not be used by anybody; it is kept in DEAD_LETTERS.
- alert: WebAgentRolloutAtCapacity
  expr: sum(webagent_sessions{ {{- $series -}} }) >= 0.95 * sum(webagent_session_capacity{ {{- $series -}} })
  for: 15m
  severity: info
  summary: Nearly all places for episodes are taken; add replicas of rollout.
{{- end -}}

{{- define "rollout.panels" -}}
{{- $series := include "common.series" . -}}
- title: Episodes in work
  unit: short
  expr: sum by (pod) (webagent_sessions{ {{- $series -}} })
- title: Oldest message waiting
  unit: s
  expr: max by (stream) (webagent_oldest_pending_seconds{ {{- $series -}} })
- title: Dead letters
  unit: short
  expr: max(webagent_dead_letters{ {{- $series -}} })
{{- end -}}
