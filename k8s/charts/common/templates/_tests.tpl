{{/* What every `helm test` begins with; the script defines main(). */}}

{{- define "common.testPreamble" -}}
import asyncio
import os
import uuid
from pathlib import Path

import grpc
from webagent_runtime.client import open_channel
from webagent_runtime.config import ClientConfig, ClientTlsConfig

SECONDS = float(os.environ.get("SECONDS", "120"))


def channel(target=os.environ["TARGET"]):
    tls = token = None
    if "TLS" in os.environ:
        files = Path(os.environ["TLS"])
        tls = ClientTlsConfig(
            ca_file=files / "ca.crt",
            cert_file=files / "tls.crt",
            key_file=files / "tls.key",
            server_name=os.environ["SERVER_NAME"],
        )
    if "TOKEN" in os.environ:
        token = Path(os.environ["HOME"], "token")
        token.write_text(os.environ["TOKEN"])
    return open_channel(target, ClientConfig(tls=tls, token_file=token))
{{- end -}}

{{/* helm test: the service's own image does the service's job once. dict ctx, script, env, mounts, volumes */}}
{{- define "common.test" -}}
{{- $ctx := .ctx -}}
{{- $target := printf "%s-headless.%s.svc:%v" (include "common.fullname" $ctx) $ctx.Release.Namespace .port -}}
{{- $tls := include "common.tls" $ctx -}}
{{- $env := list (dict "name" "TARGET" "value" (default $target .target)) (dict "name" "HOME" "value" "/tmp") -}}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") -}}
{{- if $tls -}}
{{- $env = append $env (dict "name" "TLS" "value" "/etc/webagent/tls") -}}
{{- $env = append $env (dict "name" "SERVER_NAME" "value" (include "common.fullname" $ctx)) -}}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/webagent/tls" "readOnly" true) -}}
{{- end -}}
{{- with $ctx.Values.tests.tokenSecret.name -}}
{{- $token := dict "name" "TOKEN" "valueFrom" (dict "secretKeyRef" (dict "name" . "key" $ctx.Values.tests.tokenSecret.key)) -}}
{{- $env = append $env $token -}}
{{- end -}}
apiVersion: v1
kind: Pod
metadata:
  {{- $annotations := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
  name: {{ include "common.fullname" $ctx }}-test
  namespace: {{ $ctx.Release.Namespace }}
  labels:
    app.kubernetes.io/name: webagent-{{ $ctx.Chart.Name }}-test
    app.kubernetes.io/instance: {{ $ctx.Release.Name }}
    app.kubernetes.io/component: test
    app.kubernetes.io/part-of: webagent
  annotations:
    {{- toYaml $annotations | nindent 4 }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  activeDeadlineSeconds: 600
  {{- with include "common.imagePullSecrets" $ctx | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml $ctx.Values.podSecurityContext | nindent 4 }}
  containers:
    - {{ include "common.scriptContainer" (dict "ctx" $ctx "name" "test" "script" (printf "%s\n\n\n%s\n\n\nasyncio.run(main())" (include "common.testPreamble" .) (.script | trim)) "env" (concat $env (default (list) .env)) "mounts" $mounts) | nindent 6 | trim }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: 256Mi
    {{- if $tls }}
    - name: tls
      secret:
        secretName: {{ include "common.tlsSecret" $ctx }}
    {{- end }}
{{- end -}}
