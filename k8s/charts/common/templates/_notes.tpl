{{/* What NOTES.txt of every service says: dict ctx, what, rpc */}}

{{- define "common.notes" -}}
{{- $ctx := .ctx -}}
{{- $spec := include "common.spec" $ctx | fromYaml -}}
{{- $name := include "common.fullname" $ctx -}}
{{- $namespace := $ctx.Release.Namespace -}}
{{ .what }}

In the cluster: {{ $name }}-headless.{{ $namespace }}.svc:{{ $spec.port }} (dns:///…, round robin)

Look at it from here:
  kubectl -n {{ $namespace }} port-forward {{ default (printf "svc/%s" $name) .forward }} {{ $spec.port }}:{{ $spec.port }}
  grpcurl {{ ternary (printf "-cacert ca.crt -cert tls.crt -key tls.key -authority %s" $name) "-plaintext" (eq (include "common.tls" $ctx) "true") }} -max-time 10 localhost:{{ $spec.port }} {{ $spec.service }}/{{ .rpc }}

Let it do its job once:
  helm test {{ $ctx.Release.Name }} -n {{ $namespace }} --logs

{{- if $ctx.Values.networkPolicy.enabled }}

Only pods of this namespace labelled app.kubernetes.io/part-of: webagent may call it; name others in networkPolicy.clients.
Some network plugins (flannel) do not enforce policies at all.
{{- else }}

networkPolicy.enabled is false: every pod of the cluster may call it.
{{- end }}
{{- if not (include "common.tls" $ctx) }}
It speaks plaintext: tls.enabled turns TLS on.
{{- end }}
{{- if not (include "common.tokensSecret" $ctx) }}
It asks for no tokens: auth.existingSecret names a Secret with them.
{{- else if $ctx.Values.auth.tokens }}
Tokens given inline lie in the release's history: for trials only.
{{- end }}
{{- end -}}
