{{/* The Indexed Job of all launchers: dict ctx, backoffLimit */}}

{{- define "trainer.jobSpec" -}}
completionMode: Indexed
completions: {{ .ctx.Values.nodes }}
parallelism: {{ .ctx.Values.nodes }}
backoffLimit: {{ .backoffLimit }}
# Two pods of one index would write the same ledger.
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
template:
  {{- include "common.podTemplate" (dict "ctx" .ctx "spec" (include "common.spec" .ctx | fromYaml)) | nindent 2 }}
{{- end -}}

{{- define "trainer.jobMetadata" -}}
name: {{ include "trainer.jobName" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "common.labels" . | nindent 2 }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "trainer.ttl" -}}
{{- if not (kindIs "invalid" .Values.job.ttlSecondsAfterFinished) -}}
ttlSecondsAfterFinished: {{ .Values.job.ttlSecondsAfterFinished }}
{{- end -}}
{{- end -}}
