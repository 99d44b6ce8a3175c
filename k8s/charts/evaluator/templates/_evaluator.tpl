{{/* What is particular to the evaluator: it reads sessions at env. */}}

{{- define "evaluator.spec" -}}
service: webagent.evaluator.v1.EvaluatorService
port: 50053
healthPort: 50083
egress:
  {{- include "common.egressTo" (list (dict "component" "env" "port" 50051)) | nindent 2 }}
{{- end -}}

{{- define "evaluator.config" -}}
server:
  {{- include "common.serverConfig" (dict "ctx" . "port" 50053 "healthPort" 50083 "metrics" true) | nindent 2 }}
telemetry:
  {{- include "common.telemetryConfig" . | nindent 2 }}
{{- $client := .Values.clients.env }}
{{- $name := default (include "common.sibling" (dict "release" .Release.Name "name" "env")) $client.serverName }}
{{- with include "common.clientConfig" (dict "ctx" . "serverName" $name "token" (ternary "env" "" (ne $client.tokenSecret.name ""))) | trim }}
env:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "evaluator.kedaTriggers" -}}
[]
{{- end -}}

{{- define "evaluator.alerts" -}}
{{- $series := include "common.series" . -}}
- alert: WebAgentEvaluatorFails
  expr: sum(rate(webagent_rpcs_total{ {{- $series }}, code!="OK"}[10m])) > 0.05 * sum(rate(webagent_rpcs_total{ {{- $series -}} }[10m]))
  for: 10m
  severity: warning
  summary: More than one call in twenty of the evaluator fails; the episodes become INVALID.
{{- end -}}

{{- define "evaluator.panels" -}}
{{- $series := include "common.series" . -}}
- title: Share of failed calls
  unit: percentunit
  expr: sum(rate(webagent_rpcs_total{ {{- $series }}, code!="OK"}[5m])) / sum(rate(webagent_rpcs_total{ {{- $series -}} }[5m]))
{{- end -}}
