{{/* What Prometheus and Grafana take. The chart's own alerts and panels: "<chart>.alerts" and "<chart>.panels". */}}

{{- define "common.serviceMonitor" -}}
{{- if .Values.metrics.serviceMonitor.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "" "labels" .Values.metrics.serviceMonitor.labels) | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
  namespaceSelector:
    matchNames: [{{ .Release.Namespace }}]
  endpoints:
    - port: metrics
      interval: {{ .Values.metrics.serviceMonitor.interval }}
{{- end }}
{{- end -}}

{{/* Labels of this release's series. */}}
{{- define "common.series" -}}
namespace="{{ .Release.Namespace }}", service="{{ include "common.fullname" . }}-headless"
{{- end -}}

{{- define "common.prometheusRule" -}}
{{- if .Values.metrics.prometheusRule.enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "" "labels" .Values.metrics.prometheusRule.labels) | nindent 2 }}
spec:
  groups:
    - name: {{ include "common.fullname" . }}
      rules:
        {{- range include (printf "%s.alerts" .Chart.Name) . | fromYamlArray }}
        - alert: {{ .alert }}
          expr: {{ .expr | quote }}
          for: {{ .for }}
          labels:
            severity: {{ .severity }}
          annotations:
            summary: {{ .summary | quote }}
        {{- end }}
        {{- with .Values.metrics.prometheusRule.extraRules }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
{{- end -}}

{{- define "common.dashboard" -}}
{{- if .Values.metrics.dashboard.enabled -}}
{{- $series := include "common.series" . -}}
{{- $shared := list
  (dict "title" "Calls per second" "unit" "reqps" "expr" (printf "sum by (method, code) (rate(webagent_rpcs_total{%s}[5m]))" $series))
  (dict "title" "Seconds per call, 95th percentile" "unit" "s" "expr" (printf "histogram_quantile(0.95, sum by (le, method) (rate(webagent_rpc_seconds_bucket{%s}[5m])))" $series)) -}}
{{- $own := include (printf "%s.panels" .Chart.Name) . | fromYamlArray -}}
{{- $panels := list -}}
{{- range $index, $panel := concat $own $shared -}}
{{- $position := dict "x" (mul 12 (mod $index 2)) "y" (mul 8 (div $index 2)) "w" 12 "h" 8 -}}
{{- $target := dict "refId" "A" "expr" $panel.expr -}}
{{- $panels = append $panels (dict "id" (add1 $index) "type" "timeseries" "title" $panel.title "gridPos" $position "datasource" (dict "type" "prometheus" "uid" "${datasource}") "targets" (list $target) "fieldConfig" (dict "defaults" (dict "unit" $panel.unit) "overrides" (list))) -}}
{{- end -}}
{{- $variable := dict "name" "datasource" "type" "datasource" "query" "prometheus" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "-dashboard" "labels" .Values.metrics.dashboard.labels) | nindent 2 }}
data:
  {{ include "common.fullname" . }}.json: |
    {{- dict "title" (printf "WebAgent %s" .Chart.Name) "uid" (printf "%s-%s" .Release.Namespace (include "common.fullname" .) | sha1sum | trunc 20) "schemaVersion" 39 "refresh" "30s" "time" (dict "from" "now-6h" "to" "now") "templating" (dict "list" (list $variable)) "panels" $panels | toPrettyJson | nindent 4 }}
{{- end }}
{{- end -}}
