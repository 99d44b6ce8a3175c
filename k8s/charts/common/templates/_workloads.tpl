{{/* Deployments, and what looks after them. */}}

{{- define "common.deployment" -}}
{{- $spec := include "common.spec" . | fromYaml -}}
{{- if hasKey $spec "Error" -}}{{- fail $spec.Error -}}{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
spec:
  {{- if not (include "common.scaled" .) }}
  replicas: {{ .Values.replicaCount }}
  {{- end }}
  revisionHistoryLimit: 5
  {{- with .Values.updateStrategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
  template:
    {{- include "common.podTemplate" (dict "ctx" . "spec" $spec) | nindent 4 }}
{{- end -}}

{{- define "common.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "common.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "common.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{/*
One Service for people and routes, a headless one for clients that balance by themselves. serviceSelector narrows both;
callSelector only the first, where pods that serve nothing still need names.
*/}}
{{- define "common.services" -}}
{{- $spec := include "common.spec" . | fromYaml -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "" "annotations" .Values.service.annotations) | nindent 2 }}
spec:
  type: {{ .Values.service.type }}
  selector:
    {{- include "common.selectorLabels" . | nindent 4 }}
    {{- with $spec.serviceSelector }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $spec.callSelector }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: grpc
      port: {{ .Values.service.port }}
      targetPort: grpc
      appProtocol: kubernetes.io/h2c
---
apiVersion: v1
kind: Service
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "-headless") | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: {{ default false $spec.publishNotReadyAddresses }}
  selector:
    {{- include "common.selectorLabels" . | nindent 4 }}
    {{- with $spec.serviceSelector }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: grpc
      port: {{ $spec.port }}
      targetPort: grpc
    - name: metrics
      port: {{ .Values.metrics.port }}
      targetPort: metrics
    {{- with $spec.headlessPorts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "common.pdb" -}}
{{- if .Values.pdb.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
spec:
  {{- if hasKey .Values.pdb "minAvailable" }}
  minAvailable: {{ .Values.pdb.minAvailable }}
  {{- else }}
  maxUnavailable: {{ .Values.pdb.maxUnavailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "common.scaleTarget" -}}
{{- if dig "multinode" "enabled" false (.Values | merge (dict)) }}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
{{- else }}
apiVersion: apps/v1
kind: Deployment
{{- end }}
name: {{ include "common.fullname" . }}
{{- end -}}

{{- define "common.hpa" -}}
{{- if .Values.autoscaling.enabled -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
spec:
  scaleTargetRef:
    {{- include "common.scaleTarget" . | nindent 4 }}
  minReplicas: {{ .Values.autoscaling.minReplicas }}
  maxReplicas: {{ .Values.autoscaling.maxReplicas }}
  metrics:
    {{- with int .Values.autoscaling.targetCPUUtilizationPercentage }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ . }}
    {{- end }}
    {{- with .Values.autoscaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  behavior:
    {{- toYaml .Values.autoscaling.behavior | nindent 4 }}
{{- end }}
{{- end -}}

{{/* The chart may bring a trigger of its own: "<chart>.kedaTrigger". */}}
{{- define "common.keda" -}}
{{- if .Values.keda.enabled -}}
{{- include "common.guards" . -}}
{{- $own := include (printf "%s.kedaTriggers" .Chart.Name) . | fromYamlArray -}}
{{- $triggers := concat $own (default (list) .Values.keda.triggers) -}}
{{- if not $triggers -}}{{- fail "keda.enabled needs keda.triggers" -}}{{- end -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
spec:
  scaleTargetRef:
    {{- include "common.scaleTarget" . | nindent 4 }}
  minReplicaCount: {{ .Values.keda.minReplicas }}
  maxReplicaCount: {{ .Values.keda.maxReplicas }}
  pollingInterval: {{ .Values.keda.pollingInterval }}
  cooldownPeriod: {{ .Values.keda.cooldownPeriod }}
  fallback:
    failureThreshold: {{ .Values.keda.fallback.failureThreshold }}
    replicas: {{ .Values.keda.fallback.replicas }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- toYaml .Values.keda.behavior | nindent 8 }}
  triggers:
    {{- range $triggers }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if and $.Values.keda.authentication.secretTargetRef (not (hasKey . "authenticationRef")) }}
      authenticationRef:
        name: {{ include "common.fullname" $ }}
      {{- end }}
    {{- end }}
{{- with .Values.keda.authentication.secretTargetRef }}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata:
  {{- include "common.metadata" (dict "ctx" $ "suffix" "") | nindent 2 }}
spec:
  secretTargetRef:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The claim that is mounted; empty: none, the data ends with the pod. */}}
{{- define "common.claim" -}}
{{- $storage := .Values.storage -}}
{{- if $storage.existingClaim -}}
{{- tpl $storage.existingClaim . -}}
{{- else if dig "sharedClaim" "" (default (dict) .Values.global) -}}
{{- tpl .Values.global.sharedClaim . -}}
{{- else if $storage.create -}}
{{- include "common.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "common.pvc" -}}
{{- if and .Values.storage.create (eq (include "common.claim" .) (include "common.fullname" .)) -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "" "annotations" (dict "helm.sh/resource-policy" "keep")) | nindent 2 }}
spec:
  accessModes:
    {{- toYaml .Values.storage.accessModes | nindent 4 }}
  {{- with .Values.storage.storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .Values.storage.size }}
{{- end }}
{{- end -}}

{{- define "common.extraObjects" -}}
{{- range .Values.extraObjects }}
---
{{ toYaml . }}
{{- end }}
{{- end -}}
