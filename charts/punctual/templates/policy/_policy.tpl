{{- /* The values, with their defaults again: `helm upgrade --reuse-values` knows only the values of the earlier chart. */ -}}
{{- define "punctual.policyValues" -}}
{{- $system := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (list "kube-system" "kube-public" "kube-node-lease") -}}
{{- $defaults := dict "enabled" true "namespaceSelector" (dict "matchExpressions" (list $system)) "allow" list "serviceAccounts" list -}}
{{- .Values.policy | default $defaults | toYaml -}}
{{- end -}}

{{- /* Metadata of a policy or a binding. The argument is (context, name). */ -}}
{{- define "punctual.policyMetadata" -}}
name: {{ include "punctual.clusterName" .context }}-{{ .name }}
labels:
  {{- include "punctual.labels" .context | nindent 2 }}
{{- end -}}

{{- /* The head of a policy's spec: it judges what the operator's account asks for, and nothing else in the cluster. */ -}}
{{- define "punctual.policyHead" -}}
failurePolicy: Fail
matchConditions:
  - name: operator
    expression: >-
      request.userInfo.username == "system:serviceaccount:{{ .Release.Namespace }}:{{ include "punctual.fullname" . }}-operator"
{{- end -}}

{{- /* The binding of a policy in all namespaces. The argument is (context, name). */ -}}
{{- define "punctual.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{- include "punctual.policyMetadata" . | nindent 2 }}
spec:
  policyName: {{ include "punctual.clusterName" .context }}-{{ .name }}
  validationActions: [Deny]
{{- end -}}

{{- /* CEL: fields are the same before and after an update. The argument is a list of paths, optional ones as `a.?b`. */ -}}
{{- define "punctual.same" -}}
{{- range $i, $path := . }}{{ if $i }} && {{ end }}object.{{ $path }} == oldObject.{{ $path }}{{ end -}}
{{- end -}}

{{- /* CEL: of labels or annotations, only those of Punctual differ before and after an update. */ -}}
{{- define "punctual.onlyOurs" -}}
object.metadata.?{{ . }}.orValue({}).all(k, k.startsWith("punctual.dev/") ||
  oldObject.metadata.?{{ . }}.orValue({})[?k] == optional.of(object.metadata.{{ . }}[k])) &&
oldObject.metadata.?{{ . }}.orValue({}).all(k, k.startsWith("punctual.dev/") || k in object.metadata.?{{ . }}.orValue({}))
{{- end -}}
