{{/* The Indexed Job of all launchers: dict ctx, backoffLimit */}}

{{- define "trainer.jobSpec" -}}
{{- $spec := include "common.spec" .ctx | fromYaml -}}
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
    # Another try would fail again. torchrun, which starts several ranks, hides the code.
    - action: FailJob
      onExitCodes:
        containerName: {{ default "trainer" $spec.containerName }}
        operator: In
        values: [3]
template:
  {{- include "common.podTemplate" (dict "ctx" .ctx "spec" $spec) | nindent 2 }}
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
