package connect

import (
	"encoding/json"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Schema returns the JSON schema of a settings file with the settings of some groups.
func Schema(groups []Group) ([]byte, error) {
	properties := map[string]any{}
	for _, g := range groups {
		for _, i := range g.Settings {
			s := settingSchema(i)
			properties[i.Env], properties[i.Flag()] = s, s
		}
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                "Settings of Muster's node plane",
		"type":                 "object",
		"properties":           properties,
		"additionalProperties": false,
	}, "", "  ")
	return append(text, '\n'), err
}

func settingSchema(i setting.Info) map[string]any {
	if i.Env == nodes.PoolsSetting {
		s := nodes.PoolsSchema()
		s["description"] = i.Meaning
		return s
	}
	s := map[string]any{"type": []string{"string", "number", "boolean", "array", "null"}, "description": i.Meaning}
	if i.Default != "" {
		s["default"] = i.Default
	}
	return s
}
