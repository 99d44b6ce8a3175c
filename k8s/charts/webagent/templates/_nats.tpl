{{/* A NATS of our own, for trials: one server, a volume, no operator. */}}

{{- define "nats.name" -}}
{{- include "common.sibling" (dict "release" .Release.Name "name" "nats") -}}
{{- end -}}

{{- define "nats.selectorLabels" -}}
app.kubernetes.io/name: webagent-nats
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nats.podLabels" -}}
{{ include "nats.selectorLabels" . }}
app.kubernetes.io/component: nats
app.kubernetes.io/part-of: webagent
{{- end -}}

{{- define "nats.labels" -}}
{{ include "nats.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "nats.image" -}}
{{- $image := .Values.nats.image -}}
{{- if eq $image.tag "latest" -}}{{- fail "nats.image.tag latest names no version: set a version or a digest" -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s/%s@%s" $image.registry $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s/%s:%s" $image.registry $image.repository $image.tag -}}
{{- end -}}
{{- end -}}

{{- define "nats.config" -}}
server_name: $POD_NAME
listen: 0.0.0.0:4222
http: 0.0.0.0:8222
pid_file: /var/run/nats/nats.pid
lame_duck_grace_period: 10s
lame_duck_duration: 30s
max_payload: 1MB
jetstream {
  store_dir: /data
  max_memory_store: 64MB
}
{{- if .Values.nats.tlsSecret }}
tls {
  cert_file: /etc/nats-tls/tls.crt
  key_file: /etc/nats-tls/tls.key
  ca_file: /etc/nats-tls/ca.crt
}
{{- end }}
{{- if .Values.nats.auth.existingSecret }}
include ./auth/auth.conf
{{- end }}
{{- end -}}
