package nodes

import (
	"fmt"
	"strconv"
	"time"
)

// Gate is one condition of a decision, as it was found.
type Gate struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Threshold string `json:"threshold"`
	Passed    bool   `json:"passed"`
}

type gates struct{ list []Gate }

func (g *gates) add(name string, value, threshold any, passed bool) bool {
	g.list = append(g.list, Gate{Name: name, Value: text(value), Threshold: text(threshold), Passed: passed})
	return passed
}

func text(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case time.Duration:
		return strconv.FormatInt(seconds(v), 10) + "s"
	case Reading:
		if !v.Known {
			return "missing"
		}
		return strconv.FormatFloat(v.Value, 'g', 4, 64)
	}
	return fmt.Sprint(v)
}
