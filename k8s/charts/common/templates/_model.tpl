{{/* Puts a model where the service looks for it, or waits until another one has. */}}

{{- define "common.modelScript" -}}
"""Copies the model from MODEL_URI to MODEL_PATH unless it is there; without an address waits until it is."""

import os
import shutil
import time
import uuid
from pathlib import Path

path = Path(os.environ["MODEL_PATH"])
uri = os.environ.get("MODEL_URI")
end = time.monotonic() + float(os.environ.get("WAIT_SECONDS", "0"))


def there():
    return (path / "config.json").is_file()


if uri and not there():
    from webagent_runtime.files import open_prefix

    filesystem, root = open_prefix(uri)
    # Under another name until it is whole; replicas may copy at the same time.
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    staging.parent.mkdir(parents=True, exist_ok=True)
    filesystem.get(f"{root.rstrip('/')}/", f"{staging}/", recursive=True)
    try:
        staging.rename(path)
    except OSError:
        shutil.rmtree(staging)
while not there():
    if time.monotonic() > end:
        raise SystemExit(f"{path}: no model (no config.json)")
    time.sleep(1)
print(f"{path}: the model is there")
{{- end -}}

{{/* Writes the default model, which inference's image carries, unless there is one. dict ctx, image */}}
{{- define "common.prepareContainer" -}}
{{- $ctx := .ctx -}}
{{- if ne (base $ctx.Values.model.path | lower) "smollm2-135m-instruct" -}}
{{- fail (printf "model.prepare would write SmolLM2-135M-Instruct to %s: name model.uri, or set model.prepare to false" $ctx.Values.model.path) -}}
{{- end -}}
name: model
image: {{ .image }}
imagePullPolicy: {{ $ctx.Values.image.pullPolicy }}
command: [python, -m, webagent_inference.prepare]
args: [--out, {{ $ctx.Values.model.path | quote }}]
env:
  - name: HOME
    value: /tmp
resources:
  requests: {cpu: "1", memory: 2Gi}
  limits: {memory: 4Gi}
securityContext:
  {{- toYaml $ctx.Values.securityContext | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  - name: storage
    mountPath: {{ $ctx.Values.storage.mountPath }}
{{- end -}}

{{/* dict ctx, envFrom, wait */}}
{{- define "common.modelContainer" -}}
{{- $ctx := .ctx -}}
{{- $env := list (dict "name" "HOME" "value" "/tmp") (dict "name" "MODEL_PATH" "value" $ctx.Values.model.path) -}}
{{- with $ctx.Values.model.uri -}}
{{- $env = append $env (dict "name" "MODEL_URI" "value" .) -}}
{{- end -}}
{{- with .wait -}}
{{- $env = append $env (dict "name" "WAIT_SECONDS" "value" (toString .)) -}}
{{- end -}}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") (dict "name" "storage" "mountPath" $ctx.Values.storage.mountPath) -}}
{{- include "common.scriptContainer" (dict "ctx" $ctx "name" "model" "script" (include "common.modelScript" .) "env" $env "envFrom" .envFrom "mounts" $mounts "resources" (dict "requests" (dict "cpu" "100m" "memory" "512Mi") "limits" (dict "memory" "2Gi"))) -}}
{{- end -}}
