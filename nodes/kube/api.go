package kube

import (
	"errors"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// api is what requests and answers are encoded and decoded by. It knows the groups of the API
// that are asked for. The clients that client-go generates know all there are, with their
// types and codecs: a third of a binary that links them.
type api struct {
	codecs     runtime.NegotiatedSerializer
	parameters runtime.ParameterCodec
}

func newAPI() (api, error) {
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"}) // Status and options
	err := errors.Join(
		corev1.AddToScheme(known),
		policyv1.AddToScheme(known),
		storagev1.AddToScheme(known),
		autoscalingv1.AddToScheme(known), // the scale of a Deployment
		authorizationv1.AddToScheme(known),
	)
	codecs := serializer.NewCodecFactory(known)
	return api{
		codecs:     rest.CodecFactoryForGeneratedClient(known, codecs).WithoutConversion(),
		parameters: runtime.NewParameterCodec(known),
	}, err
}

// client returns a client for the resources of a group; the core group has no name.
func (a api) client(rc *rest.Config, client *http.Client, group string) (rest.Interface, error) {
	rc = rest.CopyConfig(rc)
	rc.GroupVersion = &schema.GroupVersion{Group: group, Version: "v1"}
	rc.NegotiatedSerializer = a.codecs
	rc.APIPath = "/apis"
	if group == "" {
		rc.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(rc, client)
}
