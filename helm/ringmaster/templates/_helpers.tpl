{{/* Begin of all names: the release's, with "ringmaster" in it. */}}
{{- define "ringmaster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains "ringmaster" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-ringmaster" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "ringmaster.operator" -}}
{{ include "ringmaster.fullname" . }}-operator
{{- end -}}

{{- define "ringmaster.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "ringmaster.operator" .) "default" .Values.serviceAccount.create) }}
{{- end -}}

{{- define "ringmaster.selector" -}}
app.kubernetes.io/name: ringmaster-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "ringmaster.labels" -}}
{{ include "ringmaster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ringmaster
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* image: (list . .Values.image) */}}
{{- define "ringmaster.image" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* What Pod Security "restricted" asks of a pod and of a container. */}}
{{- define "ringmaster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}
{{- define "ringmaster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where the job of `helm test` runs: where jobs are looked after. */}}
{{- define "ringmaster.testNamespace" -}}
{{- if or (not .Values.watchNamespaces) (has .Release.Namespace .Values.watchNamespaces) -}}
{{ .Release.Namespace }}
{{- else -}}
{{ first .Values.watchNamespaces }}
{{- end -}}
{{- end -}}

{{/* The text form of a label selector. */}}
{{- define "ringmaster.labelSelector" -}}
{{- $terms := list -}}
{{- range $key, $value := .matchLabels -}}
{{- $terms = append $terms (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- range .matchExpressions -}}
{{- if eq .operator "In" -}}
{{- $terms = append $terms (printf "%s in (%s)" .key (join "," .values)) -}}
{{- else if eq .operator "NotIn" -}}
{{- $terms = append $terms (printf "%s notin (%s)" .key (join "," .values)) -}}
{{- else if eq .operator "Exists" -}}
{{- $terms = append $terms .key -}}
{{- else -}}
{{- $terms = append $terms (printf "!%s" .key) -}}
{{- end -}}
{{- end -}}
{{- join "," $terms -}}
{{- end -}}
