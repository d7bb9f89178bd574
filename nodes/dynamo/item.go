package dynamo

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// maxItem is DynamoDB's limit of an item's size in bytes, names included.
const maxItem = 400 << 10

// item is an item as DynamoDB has it.
type item = map[string]types.AttributeValue

// encode returns v's attributes: those that its JSON has, under the same names, left out by the same rules. Numbers are N, booleans
// BOOL, texts S, lists L and objects M.
func encode(v any) (item, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	out := make(item, len(m))
	for k, x := range m {
		out[k] = attribute(x)
	}
	return out, nil
}

func attribute(v any) types.AttributeValue {
	switch v := v.(type) {
	case bool:
		return &types.AttributeValueMemberBOOL{Value: v}
	case json.Number:
		return &types.AttributeValueMemberN{Value: v.String()}
	case string:
		return &types.AttributeValueMemberS{Value: v}
	case []any:
		l := make([]types.AttributeValue, len(v))
		for i, x := range v {
			l[i] = attribute(x)
		}
		return &types.AttributeValueMemberL{Value: l}
	case map[string]any:
		m := make(map[string]types.AttributeValue, len(v))
		for k, x := range v {
			m[k] = attribute(x)
		}
		return &types.AttributeValueMemberM{Value: m}
	}
	return &types.AttributeValueMemberNULL{Value: true}
}

// decode reads what of an item v knows into v. A string set is as good as a list of strings: programs differ in what they write.
func decode(in item, v any) error {
	m := map[string]any{}
	for name := range fields(v) {
		if a, ok := in[name]; ok {
			x, err := plain(a)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			m[name] = x
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = json.Unmarshal(b, v)
	if te, ok := err.(*json.UnmarshalTypeError); ok { //nolint:errorlint // Unmarshal returns it as it is
		return fmt.Errorf("%s is a %s where a %s belongs", te.Field, te.Value, te.Type)
	}
	return err
}

func plain(a types.AttributeValue) (any, error) {
	switch a := a.(type) {
	case *types.AttributeValueMemberBOOL:
		return a.Value, nil
	case *types.AttributeValueMemberN:
		return number(a.Value)
	case *types.AttributeValueMemberS:
		return a.Value, nil
	case *types.AttributeValueMemberB:
		return base64.StdEncoding.EncodeToString(a.Value), nil
	case *types.AttributeValueMemberNULL:
		return nil, nil
	case *types.AttributeValueMemberSS:
		return a.Value, nil
	case *types.AttributeValueMemberNS:
		out := make([]any, len(a.Value))
		for i, n := range a.Value {
			x, err := number(n)
			if err != nil {
				return nil, err
			}
			out[i] = x
		}
		return out, nil
	case *types.AttributeValueMemberL:
		out := make([]any, len(a.Value))
		for i, x := range a.Value {
			y, err := plain(x)
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			out[i] = y
		}
		return out, nil
	case *types.AttributeValueMemberM:
		out := make(map[string]any, len(a.Value))
		for k, x := range a.Value {
			y, err := plain(x)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", k, err)
			}
			out[k] = y
		}
		return out, nil
	}
	return nil, fmt.Errorf("attributes of type %T are not understood", a)
}

// number returns a DynamoDB number as JSON has it.
func number(s string) (json.Number, error) {
	if _, err := strconv.ParseFloat(s, 64); err != nil || !json.Valid([]byte(s)) {
		return "", fmt.Errorf("%q is not a number", s)
	}
	return json.Number(s), nil
}

// fields returns the names under which v, a pointer to a struct, is written. encoding/json would also take a name in other case for
// them, DynamoDB tells them apart.
func fields(v any) map[string]bool {
	out := map[string]bool{}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = true
		}
	}
	return out
}

// size returns the bytes of an item as DynamoDB counts them, and its largest attribute.
func size(in item) (total int, largest string) {
	most := -1
	for name, a := range in {
		n := len(name) + sizeOf(a)
		total += n
		if n > most || n == most && name < largest {
			most, largest = n, name
		}
	}
	return total, largest
}

func sizeOf(a types.AttributeValue) int {
	switch a := a.(type) {
	case *types.AttributeValueMemberS:
		return len(a.Value)
	case *types.AttributeValueMemberB:
		return len(a.Value)
	case *types.AttributeValueMemberN:
		return len(a.Value)/2 + 2 // two digits a byte, sign and exponent
	case *types.AttributeValueMemberSS:
		n := 0
		for _, s := range a.Value {
			n += len(s)
		}
		return n
	case *types.AttributeValueMemberNS:
		n := 0
		for _, s := range a.Value {
			n += len(s)/2 + 2
		}
		return n
	case *types.AttributeValueMemberBS:
		n := 0
		for _, b := range a.Value {
			n += len(b)
		}
		return n
	case *types.AttributeValueMemberL:
		n := 3 + len(a.Value)
		for _, x := range a.Value {
			n += sizeOf(x)
		}
		return n
	case *types.AttributeValueMemberM:
		n := 3 + len(a.Value)
		for k, x := range a.Value {
			n += len(k) + sizeOf(x)
		}
		return n
	}
	return 1
}

// update builds the expressions of an UpdateItem.
type update struct {
	set, remove, conditions []string
	names                   map[string]string
	values                  item
	byName                  map[string]string
}

func newUpdate() *update {
	return &update{names: map[string]string{}, values: item{}, byName: map[string]string{}}
}

// name returns the placeholder of an attribute's name; no name is ever taken for a reserved word or a path.
func (u *update) name(attribute string) string {
	p, ok := u.byName[attribute]
	if !ok {
		p = fmt.Sprintf("#a%d", len(u.names))
		u.byName[attribute], u.names[p] = p, attribute
	}
	return p
}

func (u *update) value(v types.AttributeValue) string {
	p := fmt.Sprintf(":v%d", len(u.values))
	u.values[p] = v
	return p
}

// change makes the attribute v, or removes it if v is nil.
func (u *update) change(attribute string, v types.AttributeValue) {
	if v == nil {
		u.remove = append(u.remove, u.name(attribute))
		return
	}
	u.set = append(u.set, u.name(attribute)+" = "+u.value(v))
}

// expect makes the update conditional on the attribute being v, or absent if v is nil.
func (u *update) expect(attribute string, v types.AttributeValue) {
	if v == nil {
		u.conditions = append(u.conditions, "attribute_not_exists("+u.name(attribute)+")")
		return
	}
	u.conditions = append(u.conditions, u.name(attribute)+" = "+u.value(v))
}

func (u *update) expression() *string {
	var parts []string
	if len(u.set) > 0 {
		parts = append(parts, "SET "+strings.Join(u.set, ", "))
	}
	if len(u.remove) > 0 {
		parts = append(parts, "REMOVE "+strings.Join(u.remove, ", "))
	}
	if len(parts) == 0 {
		return nil
	}
	s := strings.Join(parts, " ")
	return &s
}

func (u *update) condition() *string {
	if len(u.conditions) == 0 {
		return nil
	}
	s := strings.Join(u.conditions, " AND ")
	return &s
}

// attributeValues returns the placeholders' values, nil for none, which DynamoDB wants to be absent.
func (u *update) attributeValues() item {
	if len(u.values) == 0 {
		return nil
	}
	return u.values
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func count(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// textOf returns a text attribute, "" if there is none.
func textOf(in item, name string) string {
	if s, ok := in[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// countOf returns a whole number, false if there is none.
func countOf(in item, name string) (int64, bool) {
	a, ok := in[name].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(a.Value, 10, 64)
	return n, err == nil
}
