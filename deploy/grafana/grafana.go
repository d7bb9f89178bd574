// Package grafana holds dashboards for Grafana, one for each plane, in the JSON that it imports and exports, and reads what of them says
// which queries they ask.
package grafana

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
)

// SchemaVersion is that of the dashboards, Grafana 12's and 13's.
const SchemaVersion = 42

//go:embed *.json
var files embed.FS

// Dashboard is a dashboard as Grafana keeps it; what is not named here is not in one.
type Dashboard struct {
	File string `json:"-"` // that it is in

	UID           string         `json:"uid"` // in links to it; it never changes
	Title         string         `json:"title"`
	Description   string         `json:"description"`
	Tags          []string       `json:"tags"`
	SchemaVersion int            `json:"schemaVersion"`
	Version       int            `json:"version"`
	Editable      bool           `json:"editable"`
	GraphTooltip  int            `json:"graphTooltip"`
	Refresh       string         `json:"refresh"`
	Timezone      string         `json:"timezone"`
	Time          TimeRange      `json:"time"`
	Timepicker    map[string]any `json:"timepicker"`
	Annotations   Annotations    `json:"annotations"`
	Links         []Link         `json:"links"`
	Templating    Templating     `json:"templating"`
	Panels        []Panel        `json:"panels"`
}

// TimeRange is what a dashboard shows at first.
type TimeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Annotations are events that are drawn into all panels; there are none.
type Annotations struct {
	List []any `json:"list"`
}

// Link leads from one dashboard to those with the same tags.
type Link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	URL         string   `json:"url"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	TargetBlank bool     `json:"targetBlank"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

// Templating has what can be chosen above a dashboard.
type Templating struct {
	List []Variable `json:"list"`
}

// Variable is one choice: of the Prometheus that is asked, or of more label matchers for every query.
type Variable struct {
	Name       string     `json:"name"`
	Label      string     `json:"label"`
	Type       string     `json:"type"`
	Query      string     `json:"query"`
	Hide       int        `json:"hide"`
	Multi      bool       `json:"multi"`
	IncludeAll bool       `json:"includeAll"`
	Refresh    int        `json:"refresh"`
	Regex      string     `json:"regex"`
	Options    []any      `json:"options"`
	Datasource Datasource `json:"datasource"`
	Filters    []any      `json:"filters"`
}

// Datasource says who is asked.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Panel is a panel, or a row's heading, which asks nothing.
type Panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description"`
	Datasource      Datasource       `json:"datasource"`
	GridPos         GridPos          `json:"gridPos"`
	FieldConfig     FieldConfig      `json:"fieldConfig"`
	Options         map[string]any   `json:"options"`
	Targets         []Target         `json:"targets"`
	Transformations []Transformation `json:"transformations"`
	Collapsed       bool             `json:"collapsed"`
	Panels          []Panel          `json:"panels"` // of a row that is collapsed
}

// GridPos is a place in a grid of 24 columns.
type GridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// FieldConfig says how values are shown.
type FieldConfig struct {
	Defaults  Field `json:"defaults"`
	Overrides []any `json:"overrides"`
}

// Field is how one value is shown.
type Field struct {
	Unit       string         `json:"unit"`
	Min        *float64       `json:"min"`
	Max        *float64       `json:"max"`
	Decimals   *int           `json:"decimals"`
	Color      map[string]any `json:"color"`
	Thresholds Thresholds     `json:"thresholds"`
	Mappings   []any          `json:"mappings"`
	Custom     map[string]any `json:"custom"`
}

// Thresholds are values from which on another color is shown; the first has no value.
type Thresholds struct {
	Mode  string      `json:"mode"`
	Steps []Threshold `json:"steps"`
}

// Threshold is one of them.
type Threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// Target is a query of a panel.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
	EditorMode   string     `json:"editorMode"`
	Expr         string     `json:"expr"` // PromQL, with Grafana's variables
	LegendFormat string     `json:"legendFormat"`
	Range        bool       `json:"range"`
	Instant      bool       `json:"instant"`
	Format       string     `json:"format"`
}

// Transformation changes answers before they are shown.
type Transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

// Dashboards returns all of them, by file name. A file with a field that is not known here is an error.
func Dashboards() ([]Dashboard, error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, err
	}
	var all []Dashboard
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		d := Dashboard{File: name}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			return nil, fmt.Errorf("reading dashboard %s: %w", name, err)
		}
		all = append(all, d)
	}
	return all, nil
}
