{{/*
Names and labels. A name is at most 63 characters, whatever is appended to it.
The charts define "<chart>.spec", a YAML mapping that says what is particular to their service.
*/}}

{{- define "common.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 42 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- include "common.sibling" (dict "release" .Release.Name "name" $name) -}}
{{- end -}}
{{- end -}}

{{/* The name that a chart of the same release has. */}}
{{- define "common.sibling" -}}
{{- if contains .name .release -}}
{{- .release | trunc 42 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.release | trunc (sub 41 (len .name) | int) | trimSuffix "-") .name -}}
{{- end -}}
{{- end -}}

{{- define "common.selectorLabels" -}}
app.kubernetes.io/name: webagent-{{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* On every pod; network policies select by them. */}}
{{- define "common.podLabels" -}}
{{ include "common.selectorLabels" . }}
app.kubernetes.io/component: {{ .Chart.Name }}
app.kubernetes.io/part-of: webagent
{{- end -}}

{{- define "common.labels" -}}
{{ include "common.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of an object: dict ctx, suffix (may be empty), annotations, labels */}}
{{- define "common.metadata" -}}
name: {{ include "common.fullname" .ctx }}{{ .suffix }}
namespace: {{ .ctx.Release.Namespace }}
labels:
  {{- include "common.labels" .ctx | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := merge (dict) (default (dict) .annotations) (default (dict) .ctx.Values.commonAnnotations) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "common.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "common.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "common.image" -}}
{{- include "common.imageOf" (dict "ctx" . "image" .Values.image) -}}
{{- end -}}

{{/* registry/repository@digest, else :tag, else :appVersion. dict ctx, image; without a registry the service's own */}}
{{- define "common.imageOf" -}}
{{- $global := default (dict) .ctx.Values.global -}}
{{- $image := .image -}}
{{- $registry := default (default (get $global "imageRegistry") .ctx.Values.image.registry) $image.registry -}}
{{- if not $registry -}}
{{- fail "no image registry: build and push the images first (k8s/README.md), then set global.imageRegistry or image.registry" -}}
{{- end -}}
{{- $tag := default .ctx.Chart.AppVersion $image.tag -}}
{{- if eq $tag "latest" -}}{{- fail "image.tag latest names no version: set a version or image.digest" -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s/%s@%s" $registry $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s/%s:%s" $registry $image.repository $tag -}}
{{- end -}}
{{- end -}}

{{- define "common.imagePullSecrets" -}}
{{- $global := default (dict) .Values.global -}}
{{- with concat (default (list) (get $global "imagePullSecrets")) (default (list) .Values.imagePullSecrets) | uniq }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "common.spec" -}}
{{- include (printf "%s.spec" .Chart.Name) . -}}
{{- end -}}

{{/* What only Helm can check, with a sentence that says what to do. The schema refuses the same where it can. */}}
{{- define "common.guards" -}}
{{- $autoscaling := default (dict) .Values.autoscaling -}}
{{- $keda := default (dict) .Values.keda -}}
{{- if and $autoscaling.enabled $keda.enabled -}}
{{- fail "autoscaling.enabled and keda.enabled exclude each other: both would set the replicas" -}}
{{- end -}}
{{- $requests := default (dict) (get (default (dict) .Values.resources) "requests") -}}
{{- if not (and (get $requests "cpu") (get $requests "memory")) -}}
{{- fail "resources.requests must name cpu and memory" -}}
{{- end -}}
{{- if and .Values.terminationGracePeriodSeconds (lt (int .Values.terminationGracePeriodSeconds) (int .Values.drainSeconds)) -}}
{{- fail (printf "terminationGracePeriodSeconds %v is below drainSeconds %v: work under way would be killed" .Values.terminationGracePeriodSeconds .Values.drainSeconds) -}}
{{- end -}}
{{- end -}}

{{- define "common.scaled" -}}
{{- if or (get (default (dict) .Values.autoscaling) "enabled") (get (default (dict) .Values.keda) "enabled") -}}true{{- end -}}
{{- end -}}

{{/* global.tls.enabled turns TLS on everywhere. */}}
{{- define "common.tls" -}}
{{- if or .Values.tls.enabled (dig "tls" "enabled" false (default (dict) .Values.global)) -}}true{{- end -}}
{{- end -}}

{{- define "common.tlsIssuer" -}}
{{- $issuer := default (dig "tls" "issuerRef" (dict) (default (dict) .Values.global)) .Values.tls.certManager.issuerRef -}}
{{- toYaml $issuer -}}
{{- end -}}

{{- define "common.tlsSecret" -}}
{{- default (printf "%s-tls" (include "common.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* Seconds until a pod is killed: what the service may take to drain, and some to end. */}}
{{- define "common.grace" -}}
{{- default (add (int .Values.drainSeconds) 30) .Values.terminationGracePeriodSeconds -}}
{{- end -}}
