package dynamo

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/muster-dev/muster/nodes"
)

// wire reads an attribute as DynamoDB sends it, for example {"S":"text"}.
func wire(raw json.RawMessage, depth int) (types.AttributeValue, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || len(m) != 1 || depth > 20 {
		return nil, false
	}
	read := func(into any, k string) bool { return json.Unmarshal(m[k], into) == nil }
	for k := range m {
		switch k {
		case "S":
			v := &types.AttributeValueMemberS{}
			return v, read(&v.Value, k)
		case "N":
			v := &types.AttributeValueMemberN{}
			return v, read(&v.Value, k)
		case "BOOL":
			v := &types.AttributeValueMemberBOOL{}
			return v, read(&v.Value, k)
		case "NULL":
			v := &types.AttributeValueMemberNULL{}
			return v, read(&v.Value, k)
		case "B":
			v := &types.AttributeValueMemberB{}
			return v, read(&v.Value, k)
		case "SS":
			v := &types.AttributeValueMemberSS{}
			return v, read(&v.Value, k)
		case "NS":
			v := &types.AttributeValueMemberNS{}
			return v, read(&v.Value, k)
		case "BS":
			v := &types.AttributeValueMemberBS{}
			return v, read(&v.Value, k)
		case "L":
			var l []json.RawMessage
			v := &types.AttributeValueMemberL{}
			if !read(&l, k) {
				return nil, false
			}
			for _, x := range l {
				e, ok := wire(x, depth+1)
				if !ok {
					return nil, false
				}
				v.Value = append(v.Value, e)
			}
			return v, true
		case "M":
			v := &types.AttributeValueMemberM{}
			it, ok := wireItem(m[k], depth+1)
			v.Value = it
			return v, ok
		}
	}
	return nil, false
}

func wireItem(raw []byte, depth int) (item, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	out := item{}
	for k, x := range m {
		v, ok := wire(x, depth)
		if !ok {
			return nil, false
		}
		out[k] = v
	}
	return out, true
}

// FuzzDecode reads items that anybody may have written. What is accepted is written back as something that reads the same; what is
// not is an error, never a panic and never a record that says something else than the item.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"pk":{"S":"cluster"},"scalingInProgress":{"BOOL":true},"lastScaleEpoch":{"N":"1730000000"},"scaleUpInstanceIds":{"L":[{"S":"i-1"}]}}`,
		`{"pk":{"S":"cluster"},"workerCount":{"N":"1e400"},"idleSinceEpoch":{"NULL":true},"removals":{"L":[{"M":{"node":{"M":{"name":{"N":"1"}}}}}]}}`,
		`{"scaleDownTargetInstanceIds":{"SS":["i-1","i-2"]},"scaleUpIntent":{"M":{"request":{"M":{"token":{"S":"t"},"offering":{"L":[]}}}}}}`,
		`{"instanceId":{"S":"i-1"},"kind":{"S":"warning"},"closed":{"S":"yes"},"node":{"M":{"uid":{"B":"AA=="}}},"exhausted":{"NS":["1"]}}`,
		`{"sk":{"S":"1730000000000#t#0001"},"at":{"S":"2024-10-27T03:33:20Z"},"tick":{"S":"t"},"seq":{"N":"1"},"data":{"S":"{}"}}`,
		`{"sk":{"S":"1730000000000#t#0001"},"sha256":{"S":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"packed":{"B":""}}`,
		`{"sk":{"S":"k"},"sha256":{"S":"x"},"packed":{"B":"KLUv/QQAAQAAe30="},"parts":{"N":"-1"}}`,
		`{"PK":{"S":"x"},"revision":{"N":"01"},"schemaVersion":{"N":"99999999999999999999"},"leaseFence":{"N":"-0"}}`,
	} {
		f.Add([]byte(seed))
	}
	j := (&DB{cfg: Config{LogsTable: "logs"}}).EventLog()
	f.Fuzz(func(t *testing.T, raw []byte) {
		it, ok := wireItem(raw, 0)
		if !ok {
			return // no item, so nobody sends it
		}
		_ = isTooNew(it)
		_, _ = size(it)
		var r, again nodes.Record
		if decode(it, &r) == nil {
			roundTrip(t, r, &again)
		}
		var i, iAgain nodes.Interruption
		if decode(it, &i) == nil {
			roundTrip(t, i, &iAgain)
		}
		if textOf(it, "sha256") == "" || it["packed"] != nil {
			if _, isBytes := it["packed"].(*types.AttributeValueMemberB); textOf(it, "sha256") != "" && !isBytes {
				return // parts would be asked of a server
			}
			e, err := j.event(t.Context(), it)
			var ce *CorruptError
			if err != nil && !errors.As(err, &ce) || err == nil && e.Key() != textOf(it, sortAttribute) {
				t.Errorf("read event %s from item %s, %v", e.Key(), textOf(it, sortAttribute), err)
			}
		}
	})
}

// roundTrip encodes v, decodes it into again, a pointer to the zero value, and encodes that: the items are the same.
func roundTrip(t *testing.T, v, again any) {
	t.Helper()
	first, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := decode(first, again); err != nil {
		t.Fatalf("what was accepted can't be read back: %v", err)
	}
	second, err := encode(again)
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("written as %v, then as %v, %v", first, second, err)
	}
}
