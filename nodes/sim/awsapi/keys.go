package awsapi

import (
	"encoding/xml"
	"strconv"
	"strings"
	"sync"
)

type getCallerIdentityResponse struct {
	XMLName   xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ GetCallerIdentityResponse"`
	ARN       string   `xml:"GetCallerIdentityResult>Arn"`
	UserID    string   `xml:"GetCallerIdentityResult>UserId"`
	Account   string   `xml:"GetCallerIdentityResult>Account"`
	RequestID string   `xml:"ResponseMetadata>RequestId"`
}

func getCallerIdentity(*request) (any, error) {
	return getCallerIdentityResponse{ARN: "arn:aws:sts::" + account + ":assumed-role/muster/test", UserID: "AROATEST:test", Account: account, RequestID: "simulated"}, nil
}

// keys is SSM's Parameter Store and Secrets Manager.
type keys struct {
	mu                  sync.Mutex        // for parameters
	parameters, secrets map[string]string // by name
}

// put sets a parameter.
func (k *keys) put(name, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parameters[name] = value
}

func (k *keys) getParameter(r *request) (any, error) {
	name := r.get("Name")
	k.mu.Lock()
	value, ok := k.parameters[name]
	k.mu.Unlock()
	if !ok {
		return nil, refused("ParameterNotFound", "")
	}
	bare, selector, _ := strings.Cut(name, ":")
	version, err := strconv.Atoi(selector)
	if err != nil { // none, or a label
		version = 1
	}
	return map[string]any{"Parameter": map[string]any{"Name": bare, "Type": "SecureString", "Value": value, "Version": version}}, nil
}

func (k *keys) getSecretValue(r *request) (any, error) {
	name := r.get("SecretId")
	value, ok := k.secrets[name]
	if !ok {
		return nil, refused("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
	return map[string]any{"ARN": "arn:aws:secretsmanager:local:" + account + ":secret:" + name, "Name": name, "SecretString": value, "VersionId": "1"}, nil
}
