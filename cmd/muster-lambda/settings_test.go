package main

import (
	"io"
	"strings"
	"testing"
)

// TestSettingsDocument: what the environment does not set comes from SETTINGS, and what is wrong there is told with the rest.
func TestSettingsDocument(t *testing.T) {
	env := map[string]string{
		"CLUSTER": "prod", "STATE_TABLE": "state", "LOGS_TABLE": "logs", "AWS_REGION": "x-1", "LAUNCH_TEMPLATE": "lt-0a1b", "LAUNCH_TEMPLATE_VERSION": "7",
		"K3S_URL": "https://10.0.0.10:6443", "K3S_TOKEN_REF": "ssm:/muster/agent-token", "KUBE_API_URL": "https://10.0.0.10:6443",
		"KUBE_CA_REF": "ssm:/muster/kube-ca", "KUBE_TOKEN_REF": "ssm:/muster/kube-token", "PROMETHEUS_URL": "http://10.0.0.11:9090",
	}
	start := func(document string) error {
		_, err := newHandler(t.Context(), func(name string) (string, bool) {
			if name == "SETTINGS" {
				return document, true
			}
			v, ok := env[name]
			return v, ok
		}, io.Discard)
		return err
	}
	if err := start(`{"CPU_UP": 0.8, "DRAIN_LOCAL_STORAGE": "evict", "LAMBDA_MARGIN_SEC": 7}`); err != nil {
		t.Errorf("right settings: %v", err)
	}
	err := start(`{"CPU_UP": 80, "CPU_DOWM": 0.2, "K3S_URL": "https://other", "DRAIN_LOCAL_STORAGE": "perhaps"}`)
	if err == nil || !strings.Contains(err.Error(), "CPU_DOWM") {
		t.Errorf("a name that does not exist: %v", err)
	}
	err = start(`{"CPU_UP": 80, "K3S_URL": "https://other", "DRAIN_LOCAL_STORAGE": "perhaps", "DIR": "/tmp"}`)
	for _, name := range []string{"CPU_UP", "K3S_URL", "DRAIN_LOCAL_STORAGE", "DIR"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not complained about: %v", name, err)
		}
	}
}
