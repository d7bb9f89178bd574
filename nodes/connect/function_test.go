package connect

import (
	"strings"
	"testing"
)

func TestFunctionLookup(t *testing.T) {
	env := map[string]string{"MAX_WORKERS": "7", "EMPTY": ""}
	for name, c := range map[string]struct {
		document string
		wrong    string // in the error; "" none
		setting  string
		want     string
	}{
		"none":                        {"", "", "MAX_WORKERS", "7"},
		"empty":                       {"{}", "", "MAX_WORKERS", "7"},
		"JSON":                        {`{"CPU_UP": 0.8, "INSTANCE_TYPES": ["a", "b"]}`, "", "INSTANCE_TYPES", "a,b"},
		"YAML, as flags are written":  {"cpu-up: 0.8\nsizing: fit\n", "", "SIZING", "fit"},
		"a setting of the function":   {`{"LAMBDA_MARGIN_SEC": 9}`, "", "LAMBDA_MARGIN_SEC", "9"},
		"set by the environment, too": {`{"MAX_WORKERS": 9}`, "MAX_WORKERS", "MAX_WORKERS", "7"},
		"no such setting":             {`{"CPU_UPP": 0.8}`, "did you mean CPU_UP?", "", ""},
		"not for a function":          {`{"DIR": "/tmp"}`, "keeps nothing on its disk", "", ""},
		"no mapping":                  {"a secret", "SETTINGS", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			lookup, err := FunctionLookup(t.Context(), func(n string) (string, bool) {
				if n == SettingsVar {
					return c.document, c.document != ""
				}
				v, ok := env[n]
				return v, ok
			}, "LAMBDA_MARGIN_SEC")
			if (err != nil) != (c.wrong != "") || err != nil && (!strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "secret")) {
				t.Fatalf("%v", err)
			}
			if got, _ := lookup(c.setting); c.setting != "" && got != c.want {
				t.Errorf("%s is %q, want %q", c.setting, got, c.want)
			}
		})
	}
}
