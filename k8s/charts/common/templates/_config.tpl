{{/*
The service's configuration file. JSON, which is YAML as well: numbers stay what they are, whatever Helm made of them.
What the chart decides (ports, files of mounted secrets) wins over `config`, whose schema refuses those keys.
*/}}

{{/* dict ctx, port, healthPort, metrics (whether this server has the metrics port) */}}
{{- define "common.serverConfig" -}}
{{- $values := .ctx.Values -}}
host: 0.0.0.0
port: {{ .port }}
drain_seconds: {{ $values.drainSeconds }}
{{- if .metrics }}
metrics_port: {{ $values.metrics.port }}
{{- end }}
{{- if include "common.tls" .ctx }}
{{- with .healthPort }}
health_port: {{ . }}
{{- end }}
tls:
  cert_file: /etc/webagent/tls/tls.crt
  key_file: /etc/webagent/tls/tls.key
  {{- if $values.tls.clientAuth }}
  client_ca_file: /etc/webagent/tls/ca.crt
  {{- end }}
{{- end }}
{{- if include "common.tokensSecret" .ctx }}
tokens_file: /etc/webagent/tokens/tokens.yaml
{{- end }}
{{- end -}}

{{- define "common.telemetryConfig" -}}
{{- $global := default (dict) .Values.global -}}
log_format: {{ .Values.telemetry.logFormat }}
log_level: {{ .Values.telemetry.logLevel }}
{{- with default (get $global "otlpEndpoint") .Values.telemetry.otlpEndpoint }}
otlp_endpoint: {{ . }}
{{- end }}
{{- end -}}

{{/* How this service calls others: dict ctx, target, serverName, token (whether it has a token to send) */}}
{{- define "common.clientConfig" -}}
{{- $ctx := .ctx -}}
{{- if include "common.tls" $ctx }}
tls:
  ca_file: /etc/webagent/tls/ca.crt
  cert_file: /etc/webagent/tls/tls.crt
  key_file: /etc/webagent/tls/tls.key
  {{- with .serverName }}
  server_name: {{ . }}
  {{- end }}
{{- end }}
{{- if .token }}
token_file: /etc/webagent/client/{{ .token }}
{{- end }}
{{- end -}}

{{- define "common.queueConfig" -}}
{{- if not (or .Values.queue.urlSecret.name (contains "@" .Values.queue.url)) }}
url: {{ include "common.queueUrl" . }}
{{- end }}
replicas: {{ default (dig "nats" "streamReplicas" 1 (default (dict) .Values.global)) .Values.queue.streamReplicas }}
{{- if .Values.queue.credentialsSecret.name }}
credentials_file: /etc/webagent/queue/{{ .Values.queue.credentialsSecret.key }}
{{- end }}
{{- with .Values.queue.tlsSecret }}
tls:
  ca_file: /etc/webagent/queue-tls/ca.crt
{{- end }}
{{- end -}}

{{- define "common.queueUrl" -}}
{{- $url := default (dig "nats" "external" "url" "" (default (dict) .Values.global)) .Values.queue.url -}}
{{- default (printf "nats://%s:4222" (include "common.sibling" (dict "release" .Release.Name "name" "nats"))) $url -}}
{{- end -}}

{{/* The environment that carries the queue's URL where it is a secret: dict ctx, prefix */}}
{{- define "common.queueEnv" -}}
{{- $queue := .ctx.Values.queue -}}
{{- if $queue.urlSecret.name }}
- name: {{ .prefix }}__QUEUE__URL
  valueFrom:
    secretKeyRef:
      name: {{ $queue.urlSecret.name }}
      key: {{ $queue.urlSecret.key }}
{{- else if contains "@" $queue.url }}
- name: {{ .prefix }}__QUEUE__URL
  valueFrom:
    secretKeyRef:
      name: {{ include "common.fullname" .ctx }}
      key: queue-url
{{- end }}
{{- end -}}

{{/* The Secret with this server's tokens; empty: it asks for none. */}}
{{- define "common.tokensSecret" -}}
{{- if .Values.auth.existingSecret -}}
{{- .Values.auth.existingSecret -}}
{{- else if .Values.auth.tokens -}}
{{- include "common.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "common.config" -}}
{{- $own := include (printf "%s.config" .Chart.Name) . | fromYaml -}}
{{- if hasKey $own "Error" -}}{{- fail (printf "configuration: %s" $own.Error) -}}{{- end -}}
{{- mergeOverwrite (deepCopy (default (dict) .Values.config)) $own | toPrettyJson -}}
{{- end -}}

{{- define "common.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
data:
  config.json: |
    {{- include "common.config" . | nindent 4 }}
{{- end -}}

{{/* Only for trials: what was given inline. */}}
{{- define "common.secretData" -}}
{{- if and .Values.auth.tokens (not .Values.auth.existingSecret) }}
tokens.yaml: {{ toYaml .Values.auth.tokens | b64enc }}
{{- end }}
{{- with .Values.queue }}
{{- if and (contains "@" .url) (not .urlSecret.name) }}
queue-url: {{ .url | b64enc }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "common.secret" -}}
{{- with include "common.secretData" . | trim }}
apiVersion: v1
kind: Secret
metadata:
  {{- include "common.metadata" (dict "ctx" $ "suffix" "") | nindent 2 }}
type: Opaque
data:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Where services put what others read: at its own address, else in a directory of the claim that they share, else in the
object store of the queue's own JetStream, if anybody may enter that. Without a queue nobody else reads it. dict ctx, uri,
name
*/}}
{{- define "common.storeUri" -}}
{{- $values := .ctx.Values -}}
{{- $global := default (dict) $values.global -}}
{{- $queue := $values.queue -}}
{{- $server := include "common.queueUrl" .ctx | trimPrefix "nats://" -}}
{{- $open := not (or $queue.urlSecret.name $queue.credentialsSecret.name $queue.tlsSecret (contains "@" $server) (contains "://" $server) (contains "," $server)) -}}
{{- $shared := or $values.storage.existingClaim (get $global "sharedClaim") -}}
{{- if default (get $global (printf "%sUri" .name)) .uri -}}
{{- default (get $global (printf "%sUri" .name)) .uri -}}
{{- else if or $shared (not (dig "enabled" true $queue)) -}}
file://{{ $values.storage.mountPath }}/{{ .name }}
{{- else if $open -}}
jetstream://{{ $server }}/{{ .name }}
{{- else -}}
{{- fail (printf "%s: the object store of a queue that asks who one is, or has several servers, is not used: name %s.uri or global.%sUri, or a claim that is shared" .name .name .name) -}}
{{- end -}}
{{- end -}}

{{- define "common.payloadsUri" -}}
{{- include "common.storeUri" (dict "ctx" . "uri" .Values.payloads.uri "name" "payloads") -}}
{{- end -}}
