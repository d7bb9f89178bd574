package awsapi

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// apiError is a refusal on the wire.
type apiError struct {
	status        int
	code, message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func refused(code, message string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, code, fmt.Sprintf(message, args...)}
}

// request is one request, of whichever protocol.
type request struct {
	Call
	ctx  context.Context
	body []byte // of a JSON request
}

// get returns a parameter, "" if there is none of that name.
func (r *request) get(key string) string { return r.Params.Get(key) }

// list returns the values of prefix.1, prefix.2, ...
func (r *request) list(prefix string) []string {
	var out []string
	for i := 1; r.Params.Has(fmt.Sprintf("%s.%d", prefix, i)); i++ {
		out = append(out, r.get(fmt.Sprintf("%s.%d", prefix, i)))
	}
	return out
}

// Tag is a tag of a resource.
type Tag struct{ Key, Value string }

// account is the number of the account that everything is in.
const account = "123456789012"

// tags returns the tags that a launch gives its instance.
func (r *request) tags() []Tag {
	var out []Tag
	for i := 1; r.Params.Has(fmt.Sprintf("TagSpecification.%d.ResourceType", i)); i++ {
		if r.get(fmt.Sprintf("TagSpecification.%d.ResourceType", i)) != "instance" {
			continue
		}
		for j := 1; ; j++ {
			key := fmt.Sprintf("TagSpecification.%d.Tag.%d.", i, j)
			if !r.Params.Has(key + "Key") {
				break
			}
			out = append(out, Tag{r.get(key + "Key"), r.get(key + "Value")})
		}
	}
	return out
}

// page returns the bounds of the requested page of n items, of which a page has at most size, and the token of the next.
func (r *request) page(size, n int) (bounds [2]int, next string, err error) {
	if m, err := strconv.Atoi(r.get("MaxResults")); err == nil {
		if m < 5 || m > 1000 {
			return bounds, "", refused("InvalidParameterValue", "Value (%d) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", m)
		}
		size = min(size, m)
	}
	from := 0
	if t := r.get("NextToken"); t != "" {
		if from, err = strconv.Atoi(strings.TrimPrefix(t, "page-")); err != nil || from < 0 {
			return bounds, "", refused("InvalidNextToken", "The token '%s' is not valid", t)
		}
	}
	from = min(from, n)
	to := min(from+size, n)
	if to < n {
		next = fmt.Sprintf("page-%d", to)
	}
	return [2]int{from, to}, next, nil
}

// filters reports whether something of which values gives the values by filter name passes all filters of the request.
func (r *request) filters(values func(name string) []string) bool {
	for i := 1; r.Params.Has(fmt.Sprintf("Filter.%d.Name", i)); i++ {
		have := values(r.get(fmt.Sprintf("Filter.%d.Name", i)))
		want := r.list(fmt.Sprintf("Filter.%d.Value", i))
		if !slices.ContainsFunc(have, func(v string) bool { return slices.Contains(want, v) }) {
			return false
		}
	}
	return true
}

// targets are the services of the JSON protocol by the first part of X-Amz-Target.
var targets = map[string]string{"AmazonSSM": "ssm", "secretsmanager": "secretsmanager", "AmazonSQS": "sqs", "AWSPriceListService": "pricing"}

const largestRequest = 1 << 20

// read reads a request of the query protocol or of the JSON protocol.
func read(hr *http.Request) (*request, error) {
	body, err := io.ReadAll(io.LimitReader(hr.Body, largestRequest))
	if err != nil {
		return nil, err
	}
	r := &request{ctx: hr.Context()}
	if target := hr.Header.Get("X-Amz-Target"); target != "" {
		service, action, _ := strings.Cut(target, ".")
		r.Service, r.Action, r.body = targets[service], action, body
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			return nil, fmt.Errorf("reading a request for %s: %w", target, err)
		}
		r.Params = url.Values{}
		for k, v := range fields {
			r.Params.Set(k, fmt.Sprint(v))
		}
		return r, nil
	}
	r.Params, err = url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	r.Service, r.Action = "ec2", r.get("Action")
	if r.get("Version") == "2011-06-15" {
		r.Service = "sts"
	}
	r.DryRun = r.get("DryRun") == "true"
	return r, nil
}

// json reports whether the request is one of the JSON protocol.
func (r *request) json() bool { return r.body != nil }

// encode writes a reply as the request's protocol does.
func (r *request) encode(out any) []byte {
	if r.json() {
		b, _ := json.Marshal(out) // plain structs and maps of this package
		return b
	}
	b, _ := xml.Marshal(out)
	return append([]byte(xml.Header), b...)
}

// encodeError writes an error as the request's protocol and service do.
func (r *request) encodeError(e *apiError) []byte {
	type one struct {
		Type    string `xml:"Type,omitempty"`
		Code    string
		Message string
	}
	switch {
	case r.json():
		b, _ := json.Marshal(map[string]string{"__type": e.code, "message": e.message})
		return b
	case r.Service == "sts":
		b, _ := xml.Marshal(struct {
			XMLName   xml.Name `xml:"ErrorResponse"`
			Error     one
			RequestID string `xml:"RequestId"`
		}{Error: one{"Sender", e.code, e.message}, RequestID: "simulated"})
		return b
	}
	b, _ := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Response"`
		Errors    []one    `xml:"Errors>Error"`
		RequestID string
	}{Errors: []one{{Code: e.code, Message: e.message}}, RequestID: "simulated"})
	return b
}
