{{/* What is particular to env. It calls nobody; its pages may reach the internet only where networkPolicy.internet says so. */}}

{{- define "env.spec" -}}
service: webagent.env.v1.EnvironmentService
port: 50051
healthPort: 50081
{{- if eq .Values.sandbox "userns" }}
hostUsers: false
{{- else if eq .Values.sandbox "seccomp-localhost" }}
podSecurityContext:
  seccompProfile: {type: Localhost, localhostProfile: {{ .Values.sandboxProfile | quote }}}
{{- end }}
{{- if .Values.keepFromEviction }}
annotations:
  cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
  karpenter.sh/do-not-disrupt: "true"
{{- end }}
env:
  # The address that rollout and the evaluator find a session at: this replica's own.
  - name: WEBAGENT_ENV__SERVER__ADVERTISE
    value: $(POD_IP)
{{- end -}}

{{- define "env.config" -}}
server:
  {{- include "common.serverConfig" (dict "ctx" . "port" 50051 "healthPort" 50081 "metrics" true) | nindent 2 }}
telemetry:
  {{- include "common.telemetryConfig" . | nindent 2 }}
state_directory: /tmp/webagent-env
browser:
  sandbox: {{ eq .Values.sandbox "seccomp-localhost" }}
{{- end -}}

{{- define "env.kedaTriggers" -}}
[]
{{- end -}}

{{- define "env.alerts" -}}
{{- $series := include "common.series" . -}}
- alert: WebAgentEnvAtCapacity
  expr: sum(webagent_sessions{ {{- $series -}} }) >= 0.95 * sum(webagent_session_capacity{ {{- $series -}} })
  for: 10m
  severity: warning
  summary: Nearly all browser sessions are taken; add replicas of env.
- alert: WebAgentEnvBrowserFaults
  expr: sum(rate(webagent_rpcs_total{ {{- $series }}, code=~"INTERNAL|UNAVAILABLE|ABORTED"}[10m])) > 0.05 * sum(rate(webagent_rpcs_total{ {{- $series -}} }[10m]))
  for: 10m
  severity: warning
  summary: More than one call in twenty fails for the browser's sake; the episodes become INVALID.
{{- end -}}

{{- define "env.panels" -}}
{{- $series := include "common.series" . -}}
- title: Sessions
  unit: short
  expr: sum by (pod) (webagent_sessions{ {{- $series -}} })
- title: Sessions, share of capacity
  unit: percentunit
  expr: sum(webagent_sessions{ {{- $series -}} }) / sum(webagent_session_capacity{ {{- $series -}} })
{{- end -}}
