{{/*
Network policies deny what they do not name. Between our own pods they go by component, in the release's namespace.
Kubelet's probes come from the node, which policies let through.
*/}}

{{- define "common.networkPolicy" -}}
{{- if .Values.networkPolicy.enabled -}}
{{- $global := default (dict) .Values.global -}}
{{- $spec := include "common.spec" . | fromYaml -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "common.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/part-of: webagent
        {{- with .Values.networkPolicy.clients }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - port: {{ $spec.port }}
          protocol: TCP
    {{- with .Values.networkPolicy.metricsClients }}
    - from:
        {{- toYaml . | nindent 8 }}
      ports:
        - port: {{ $.Values.metrics.port }}
          protocol: TCP
    {{- end }}
    {{- with $spec.ingress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .Values.networkPolicy.extraIngress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    - to:
        {{- toYaml .Values.networkPolicy.dns | nindent 8 }}
      ports:
        - port: 53
          protocol: UDP
        - port: 53
          protocol: TCP
    {{- with $spec.egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with default (get $global "otlpEndpoint") .Values.telemetry.otlpEndpoint }}
    - to:
        {{- toYaml (default (list (dict "namespaceSelector" (dict))) (get $global "otlpPeers")) | nindent 8 }}
      ports:
        - port: {{ default "4317" (regexFind ":[0-9]+/?$" . | trimAll ":/") }}
          protocol: TCP
    {{- end }}
    {{- if .Values.networkPolicy.internet.enabled }}
    - to:
        - ipBlock:
            cidr: 0.0.0.0/0
            except:
              {{- toYaml .Values.networkPolicy.internet.except | nindent 14 }}
        - ipBlock:
            cidr: ::/0
            except:
              {{- toYaml .Values.networkPolicy.internet.exceptIPv6 | nindent 14 }}
    {{- end }}
    {{- with .Values.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* Egress to our own pods: list of dicts component, port */}}
{{- define "common.egressTo" -}}
{{- range . }}
- to:
    - podSelector:
        matchLabels:
          app.kubernetes.io/part-of: webagent
          app.kubernetes.io/component: {{ .component }}
  ports:
    - port: {{ .port }}
      protocol: TCP
{{- end }}
{{- end -}}

{{/* The ports of a queue elsewhere as a list of JSON: as they are named, else those of the URL's servers. */}}
{{- define "common.queuePorts" -}}
{{- $external := dig "nats" "external" (dict) (default (dict) .Values.global) -}}
{{- $ports := default (list) $external.ports -}}
{{- if not $ports -}}
{{- range default "" (default $external.url .Values.queue.url) | splitList "," -}}
{{- $usual := 4222 -}}
{{- if hasPrefix "ws" . -}}{{- $usual = ternary 443 80 (hasPrefix "wss" .) -}}{{- end -}}
{{- $ports = append $ports (int (default $usual (regexFind ":[0-9]+(/.*)?$" . | regexFind "[0-9]+"))) -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* A queue elsewhere is not known by labels: its peers are named by global.nats.external.peers. */}}
{{- define "common.egressToQueue" -}}
{{- $external := dig "nats" "external" (dict) (default (dict) .Values.global) -}}
{{- if or $external.url .Values.queue.url .Values.queue.urlSecret.name }}
- to:
    {{- toYaml (default (list (dict "namespaceSelector" (dict))) $external.peers) | nindent 4 }}
  ports:
    {{- range include "common.queuePorts" . | fromJsonArray }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- else }}
{{- include "common.egressTo" (list (dict "component" "nats" "port" 4222)) }}
{{- end }}
{{- end -}}

{{- define "common.route" -}}
{{- if .Values.route.enabled -}}
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "" "annotations" .Values.route.annotations) | nindent 2 }}
spec:
  parentRefs:
    {{- toYaml .Values.route.parentRefs | nindent 4 }}
  {{- with .Values.route.hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs:
        - name: {{ include "common.fullname" . }}
          port: {{ .Values.service.port }}
{{- end }}
{{- end -}}

{{/* One certificate for what the service serves, by the name of each of its Services, and what it shows to others. */}}
{{- define "common.certificate" -}}
{{- $issuer := include "common.tlsIssuer" . | fromYaml -}}
{{- if and (include "common.tls" .) (not .Values.tls.existingSecret) -}}
{{- if not $issuer -}}
{{- fail "TLS is on: name tls.existingSecret, or tls.certManager.issuerRef (global.tls.issuerRef)" -}}
{{- end -}}
{{- $name := include "common.fullname" . -}}
{{- $suffixes := default (list) (include "common.spec" . | fromYaml).serviceSuffixes -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "common.metadata" (dict "ctx" . "suffix" "") | nindent 2 }}
spec:
  secretName: {{ include "common.tlsSecret" . }}
  duration: {{ .Values.tls.certManager.duration }}
  issuerRef:
    {{- toYaml $issuer | nindent 4 }}
  usages: [digital signature, key encipherment, server auth, client auth]
  dnsNames:
    {{- range concat (list "" "-headless") $suffixes }}
    - {{ $name }}{{ . }}
    - {{ $name }}{{ . }}.{{ $.Release.Namespace }}.svc
    - {{ $name }}{{ . }}.{{ $.Release.Namespace }}.svc.cluster.local
    {{- end }}
{{- end }}
{{- end -}}
