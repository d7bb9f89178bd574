package awsapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// compute is EC2: the simulator's instances, their tags, and what the options say of the rest.
type compute struct {
	region  *sim.Simulator
	client  *sim.Client
	options Options

	mu   sync.Mutex
	tags map[string][]Tag // by instance, those it was launched with
}

func newCompute(w *sim.Simulator, o Options) *compute {
	return &compute{region: w, client: w.Client(o.Actor, nil), options: o, tags: map[string][]Tag{}}
}

// The names of the tags that the simulated region reads of a launch, those of package nodes/ec2.
const (
	actionTag  = "muster.dev/action"
	ordinalTag = "muster.dev/ordinal"
	poolTag    = "muster.dev/pool"
	hashTag    = "muster.dev/template-hash"
)

// ---- RunInstances

type runInstancesResponse struct {
	XMLName   xml.Name `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ RunInstancesResponse"`
	RequestID string   `xml:"requestId"`
	ID        string   `xml:"reservationId"`
	Owner     string   `xml:"ownerId"`
	Instances []wireVM `xml:"instancesSet>item"`
}

// runInstances launches one instance. The simulator compares tokens by what it knows of a request; a digest of all the rest stands in for
// the user data's reference, so that whatever differs is a mismatch.
func (c *compute) runInstances(r *request) (any, error) {
	zone, ok := c.zoneOf(r.get("SubnetId"))
	switch {
	case r.get("MinCount") != "1" || r.get("MaxCount") != "1":
		return nil, refused("InvalidParameterCombination", "this simulation launches one instance per request")
	case r.get("SubnetId") == "":
		return nil, refused("MissingInput", "No subnets found for the default VPC")
	case !ok:
		return nil, refused("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", r.get("SubnetId"))
	case len(r.get("ClientToken")) > 64:
		return nil, refused("InvalidParameterValue", "The client token is longer than 64 characters")
	case r.get("ImageId") == "" && r.get("LaunchTemplate.LaunchTemplateId") == "" && r.get("LaunchTemplate.LaunchTemplateName") == "":
		return nil, refused("MissingParameter", "The request must contain the parameter ImageId")
	case r.get("InstanceType") == "":
		return nil, refused("MissingParameter", "The request must contain the parameter InstanceType")
	}
	if err := c.knownImage(r); err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(r.get("UserData"))
	if err != nil || len(data) > 16<<10 {
		return nil, refused("InvalidParameterValue", "User data is limited to 16384 bytes, encoded in base64")
	}
	market := nodes.OnDemand
	if m := r.get("InstanceMarketOptions.MarketType"); m == "spot" {
		market = nodes.Spot
	} else if m != "" {
		return nil, refused("InvalidParameterValue", "Invalid value '%s' for MarketType", m)
	}
	tags := r.tags()
	ordinal, _ := strconv.Atoi(tagValue(tags, ordinalTag))
	sum := sha256.Sum256([]byte(r.Params.Encode())) // sorted by name
	req := nodes.LaunchRequest{
		Token:    r.get("ClientToken"),
		Offering: nodes.Offering{Zone: zone, Subnet: r.get("SubnetId"), Type: r.get("InstanceType"), Market: market, Pool: tagValue(tags, poolTag)},
		Template: nodes.Template{
			ID:      cmp.Or(r.get("LaunchTemplate.LaunchTemplateId"), r.get("LaunchTemplate.LaunchTemplateName")),
			Version: r.get("LaunchTemplate.Version"), ImageID: r.get("ImageId"), UserDataRef: fmt.Sprintf("sha256:%x", sum),
		},
		ActionID: tagValue(tags, actionTag),
		Ordinal:  ordinal,

		TemplateHash: tagValue(tags, hashTag),
	}
	if tagValue(tags, c.options.Tag.Key) == c.options.Tag.Value {
		req.Cluster = c.region.Cluster()
	}
	in, err := c.client.LaunchAs(r.ctx, req, joinsOf(string(data)))
	if err != nil {
		return nil, refusal(err, req)
	}
	c.mu.Lock()
	c.tags[in.ID] = tags
	c.mu.Unlock()
	if m := c.options.Machines; m != nil {
		m.Launch(in, cmp.Or(string(data), c.options.UserData[req.Template.ID+"/"+req.Template.Version]))
	}
	return runInstancesResponse{RequestID: "simulated", ID: "r-" + strings.TrimPrefix(in.ID, "i-"), Owner: account, Instances: []wireVM{c.wire(in)}}, nil
}

// joinsOf returns the labels and taints that Muster's user data gives a node: the values of two of its first lines.
func joinsOf(userData string) sim.Joins {
	var out sim.Joins
	value := func(name string) []string {
		_, rest, _ := strings.Cut(userData, "\n"+name+"='")
		text, _, _ := strings.Cut(rest, "'")
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	}
	for _, l := range value("node_labels") {
		name, v, _ := strings.Cut(l, "=")
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[name] = v
	}
	for _, t := range value("node_taints") {
		rest, effect, _ := strings.Cut(t, ":")
		key, v, _ := strings.Cut(rest, "=")
		out.Taints = append(out.Taints, nodes.Taint{Key: key, Value: v, Effect: effect})
	}
	return out
}

func (c *compute) knownImage(r *request) error {
	template := cmp.Or(r.get("LaunchTemplate.LaunchTemplateId"), r.get("LaunchTemplate.LaunchTemplateName"))
	if _, ok := c.options.Templates[template+"/"+r.get("LaunchTemplate.Version")]; template != "" && c.options.Templates != nil && !ok {
		return refused("InvalidLaunchTemplateId.VersionNotFound", "The specified launch template version %s/%s does not exist.", template, r.get("LaunchTemplate.Version"))
	}
	if image := r.get("ImageId"); image != "" && c.options.Images != nil && !slices.Contains(c.options.Images, image) {
		return refused("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", image)
	}
	return nil
}

// refusal turns the simulator's refusal into the code that EC2 uses for it.
func refusal(err error, req nodes.LaunchRequest) error {
	var le *nodes.LaunchError
	if !errors.As(err, &le) {
		return err
	}
	switch le.Kind {
	case nodes.FailCapacity:
		return &apiError{http.StatusInternalServerError, "InsufficientInstanceCapacity", fmt.Sprintf("We currently do not have sufficient %s capacity in the Availability Zone you requested (%s).", req.Offering.Type, req.Offering.Zone)}
	case nodes.FailQuota:
		if req.Offering.Market == nodes.Spot {
			return refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
		}
		return refused("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 8 allows.")
	case nodes.FailAddresses:
		return refused("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s'.", req.Offering.Subnet)
	case nodes.FailSpotRole:
		return &apiError{http.StatusForbidden, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."}
	case nodes.FailSpot:
		return &apiError{http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation."}
	case nodes.FailThrottled:
		return &apiError{http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."}
	case nodes.FailTokenSpent:
		return refused("IdempotentInstanceTerminated", "Client token is associated with a terminated instance")
	}
	return refused(le.Code, "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
}

func tagValue(tags []Tag, key string) string {
	for _, t := range tags {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// ---- instances

type wireVM struct {
	ID         string      `xml:"instanceId"`
	ImageID    string      `xml:"imageId"`
	State      wireState   `xml:"instanceState"`
	PrivateIP  string      `xml:"privateIpAddress,omitempty"`
	Why        string      `xml:"reason"`
	Type       string      `xml:"instanceType"`
	LaunchTime string      `xml:"launchTime"`
	Zone       string      `xml:"placement>availabilityZone"`
	Lifecycle  string      `xml:"instanceLifecycle,omitempty"`
	Reason     *wireReason `xml:"stateReason,omitempty"`
	Tags       []wireTag   `xml:"tagSet>item"`
}

type wireState struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type wireReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type wireTag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

var stateCodes = map[nodes.InstanceState]int{
	nodes.StatePending: 0, nodes.StateRunning: 16, nodes.StateShuttingDown: 32, nodes.StateTerminated: 48, nodes.StateStopping: 64, nodes.StateStopped: 80,
}

func wireStateOf(s nodes.InstanceState) wireState { return wireState{stateCodes[s], string(s)} }

func (c *compute) wire(in nodes.Instance) wireVM {
	vm := wireVM{
		ID: in.ID, ImageID: "ami-0", State: wireStateOf(in.State), PrivateIP: in.PrivateIP, Type: in.Type,
		LaunchTime: in.LaunchedAt.UTC().Format("2006-01-02T15:04:05.000Z"), Zone: in.Zone,
	}
	if in.Market == nodes.Spot {
		vm.Lifecycle = "spot"
	}
	if in.Gone() {
		vm.Reason = &wireReason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"}
	}
	for _, t := range c.tagsOf(in) {
		vm.Tags = append(vm.Tags, wireTag(t))
	}
	return vm
}

// tagsOf returns the tags of an instance: those of its launch, or those that the simulator's own instances would have.
func (c *compute) tagsOf(in nodes.Instance) []Tag {
	c.mu.Lock()
	tags, ok := c.tags[in.ID]
	c.mu.Unlock()
	if ok || in.Foreign {
		return tags
	}
	tags = []Tag{c.options.Tag}
	if in.ActionID != "" {
		tags = append(tags, Tag{actionTag, in.ActionID})
	}
	if in.Pool != "" {
		tags = append(tags, Tag{poolTag, in.Pool})
	}
	if in.TemplateHash != "" {
		tags = append(tags, Tag{hashTag, in.TemplateHash})
	}
	if in.ControlPlane {
		tags = append(tags, c.options.ServerTag)
	}
	return tags
}

type describeInstancesResponse struct {
	XMLName      xml.Name          `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeInstancesResponse"`
	RequestID    string            `xml:"requestId"`
	Reservations []wireReservation `xml:"reservationSet>item"`
	NextToken    string            `xml:"nextToken,omitempty"`
}

type wireReservation struct {
	ID        string   `xml:"reservationId"`
	Instances []wireVM `xml:"instancesSet>item"`
}

// brokenPage is the token of a page that can't be read, while the cloud answers with half its lists.
const brokenPage = "broken"

func (c *compute) describeInstances(r *request) (any, error) {
	if r.get("NextToken") == brokenPage {
		return nil, &apiError{http.StatusServiceUnavailable, "Unavailable", "The server is overloaded and can't handle the request."}
	}
	all, err := c.client.Workers(r.ctx)
	var half *nodes.IncompleteError
	if err != nil && !errors.As(err, &half) {
		return nil, err
	}
	wanted := r.list("InstanceId")
	missing := slices.Clone(wanted)
	var vms []wireVM
	for _, in := range append(all, c.options.Foreign...) {
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == in.ID })
		if vm := c.wire(in); (len(wanted) == 0 || slices.Contains(wanted, in.ID)) && vm.passes(r) {
			vms = append(vms, vm)
		}
	}
	if len(missing) > 0 {
		return nil, refused("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(missing, ", "))
	}
	page, next, err := r.page(c.options.PageSize, len(vms))
	if err != nil {
		return nil, err
	}
	out := describeInstancesResponse{RequestID: "simulated", NextToken: next}
	for _, vm := range vms[page[0]:page[1]] {
		out.Reservations = append(out.Reservations, wireReservation{"r-" + strings.TrimPrefix(vm.ID, "i-"), []wireVM{vm}})
	}
	if half != nil && next == "" {
		out.NextToken = brokenPage
	}
	return out, nil
}

// passes reports whether an instance passes a request's filters.
func (vm wireVM) passes(r *request) bool {
	return r.filters(func(name string) []string {
		switch name {
		case "instance-id":
			return []string{vm.ID}
		case "instance-state-name":
			return []string{vm.State.Name}
		case "availability-zone":
			return []string{vm.Zone}
		}
		return tagFilter(name, vm.Tags)
	})
}

// tagFilter returns what tags give for the filter of a name.
func tagFilter(name string, tags []wireTag) []string {
	var out []string
	for _, t := range tags {
		switch name {
		case "tag:" + t.Key:
			out = append(out, t.Value)
		case "tag-key":
			out = append(out, t.Key)
		}
	}
	return out
}

type terminateInstancesResponse struct {
	XMLName   xml.Name     `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ TerminateInstancesResponse"`
	RequestID string       `xml:"requestId"`
	Instances []wireChange `xml:"instancesSet>item"`
}

type wireChange struct {
	ID       string    `xml:"instanceId"`
	Current  wireState `xml:"currentState"`
	Previous wireState `xml:"previousState"`
}

func (c *compute) terminateInstances(r *request) (any, error) {
	out := terminateInstancesResponse{RequestID: "simulated"}
	for _, id := range r.list("InstanceId") {
		found, err := c.client.Lookup(r.ctx, []string{id})
		if err != nil {
			return nil, err
		}
		before, ok := found[id]
		if !ok {
			return nil, refused("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
		if err := c.client.Terminate(r.ctx, id); err != nil {
			return nil, err
		}
		out.Instances = append(out.Instances, wireChange{id, wireStateOf(c.region.Instance(id).State), wireStateOf(before.State)})
	}
	return out, nil
}

type rebootInstancesResponse struct {
	XMLName   xml.Name `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ RebootInstancesResponse"`
	RequestID string   `xml:"requestId"`
	Return    bool     `xml:"return"`
}

// rebootInstances has machines reboot. An instance without a machine, and the simulator, know
// nothing of it: its state is running all the time.
func (c *compute) rebootInstances(r *request) (any, error) {
	ids := r.list("InstanceId")
	found, err := c.client.Lookup(r.ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if in, ok := found[id]; !ok || !in.Alive() {
			return nil, refused("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
	}
	for _, id := range ids {
		if c.options.Machines == nil {
			break
		}
		if err := c.options.Machines.Reboot(r.ctx, id); err != nil {
			return nil, refused("UnsupportedOperation", "%v", err)
		}
	}
	return rebootInstancesResponse{RequestID: "simulated", Return: true}, nil
}

// ---- the rest of EC2

type describeSubnetsResponse struct {
	XMLName   xml.Name     `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeSubnetsResponse"`
	RequestID string       `xml:"requestId"`
	Subnets   []wireSubnet `xml:"subnetSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

type wireSubnet struct {
	ID    string    `xml:"subnetId"`
	State string    `xml:"state"`
	Zone  string    `xml:"availabilityZone"`
	Free  int       `xml:"availableIpAddressCount"`
	Tags  []wireTag `xml:"tagSet>item"`
}

func (c *compute) zoneOf(subnet string) (string, bool) {
	zone, ok := strings.CutPrefix(subnet, "subnet-")
	return zone, ok && slices.Contains(c.region.Zones(), zone)
}

func (c *compute) describeSubnets(r *request) (any, error) {
	for _, id := range r.list("SubnetId") {
		if _, ok := c.zoneOf(id); !ok {
			return nil, refused("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	listed, err := c.client.Subnets(r.ctx)
	if err != nil {
		return nil, err
	}
	var all []wireSubnet
	for _, s := range listed {
		w := wireSubnet{ID: s.ID, State: "available", Zone: s.Zone, Free: 250, Tags: []wireTag{wireTag(c.options.Tag)}}
		ids := r.list("SubnetId")
		if (len(ids) == 0 || slices.Contains(ids, s.ID)) && r.filters(func(name string) []string {
			if name == "state" {
				return []string{w.State}
			}
			return tagFilter(name, w.Tags)
		}) {
			all = append(all, w)
		}
	}
	page, next, err := r.page(c.options.PageSize, len(all))
	if err != nil {
		return nil, err
	}
	return describeSubnetsResponse{RequestID: "simulated", Subnets: all[page[0]:page[1]], NextToken: next}, nil
}

type getConsoleOutputResponse struct {
	XMLName   xml.Name `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ GetConsoleOutputResponse"`
	RequestID string   `xml:"requestId"`
	ID        string   `xml:"instanceId"`
	Timestamp string   `xml:"timestamp"`
	Output    string   `xml:"output"`
}

// getConsoleOutput returns what the simulator shows of a boot. As on real EC2 only some types can give the latest output.
func (c *compute) getConsoleOutput(r *request) (any, error) {
	id := r.get("InstanceId")
	in := c.region.Instance(id)
	if in.ID == "" {
		return nil, refused("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
	}
	if r.get("Latest") == "true" && strings.HasPrefix(in.Type, "t2.") {
		return nil, refused("UnsupportedOperation", "This instance type does not support retrieving the latest console logs.")
	}
	d, err := c.client.Diagnose(r.ctx, id)
	if err != nil {
		return nil, err
	}
	if m := c.options.Machines; m != nil {
		if output, ok := m.Console(r.ctx, id); ok {
			d.Console = output
		}
	}
	return getConsoleOutputResponse{RequestID: "simulated", ID: id, Timestamp: c.region.Clock().Now().UTC().Format("2006-01-02T15:04:05.000Z"), Output: base64.StdEncoding.EncodeToString([]byte(d.Console))}, nil
}

type describeInstanceTypesResponse struct {
	XMLName   xml.Name   `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeInstanceTypesResponse"`
	RequestID string     `xml:"requestId"`
	Types     []wireType `xml:"instanceTypeSet>item"`
}

type wireType struct {
	Name   string   `xml:"instanceType"`
	Usage  []string `xml:"supportedUsageClasses>item"`
	Arch   []string `xml:"processorInfo>supportedArchitectures>item"`
	VCPU   int      `xml:"vCpuInfo>defaultVCpus"`
	Memory int      `xml:"memoryInfo>sizeInMiB"`
}

// describeInstanceTypes knows every type whose name is formed as types' names are: FAMILY.SIZE.
func (c *compute) describeInstanceTypes(r *request) (any, error) {
	out := describeInstanceTypesResponse{RequestID: "simulated"}
	for _, name := range r.list("InstanceType") {
		family, size, ok := strings.Cut(name, ".")
		if !ok || family == "" || size == "" {
			return nil, refused("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
		}
		arch := "x86_64"
		if strings.HasSuffix(family, "g") && len(family) > 2 {
			arch = "arm64"
		}
		out.Types = append(out.Types, wireType{Name: name, Usage: []string{"on-demand", "spot"}, Arch: []string{arch}, VCPU: 2, Memory: 8 << 10})
	}
	return out, nil
}

type describeLaunchTemplateVersionsResponse struct {
	XMLName   xml.Name       `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeLaunchTemplateVersionsResponse"`
	RequestID string         `xml:"requestId"`
	Versions  []wireTemplate `xml:"launchTemplateVersionSet>item"`
}

type wireTemplate struct {
	ID      string          `xml:"launchTemplateId"`
	Version string          `xml:"versionNumber"`
	ImageID string          `xml:"launchTemplateData>imageId"`
	Devices []wireInterface `xml:"launchTemplateData>networkInterfaceSet>item,omitempty"`
}

type wireInterface struct {
	DeviceIndex int `xml:"deviceIndex"`
}

func (c *compute) describeLaunchTemplateVersions(r *request) (any, error) {
	template := cmp.Or(r.get("LaunchTemplateId"), r.get("LaunchTemplateName"))
	out := describeLaunchTemplateVersionsResponse{RequestID: "simulated"}
	for _, v := range r.list("LaunchTemplateVersion") {
		image, ok := c.options.Templates[template+"/"+v]
		if c.options.Templates != nil && !ok {
			return nil, refused("InvalidLaunchTemplateId.VersionNotFound", "The specified launch template version %s/%s does not exist.", template, v)
		}
		t := wireTemplate{ID: template, Version: v, ImageID: cmp.Or(image, "ami-0")}
		if c.options.TemplateInterfaces {
			t.Devices = []wireInterface{{}}
		}
		out.Versions = append(out.Versions, t)
	}
	return out, nil
}

type describeImagesResponse struct {
	XMLName   xml.Name    `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeImagesResponse"`
	RequestID string      `xml:"requestId"`
	Images    []wireImage `xml:"imagesSet>item"`
}

type wireImage struct {
	ID    string `xml:"imageId"`
	State string `xml:"imageState"`
	Arch  string `xml:"architecture"`
}

func (c *compute) describeImages(r *request) (any, error) {
	out := describeImagesResponse{RequestID: "simulated"}
	for _, id := range r.list("ImageId") {
		if c.options.Images != nil && !slices.Contains(c.options.Images, id) {
			return nil, refused("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		out.Images = append(out.Images, wireImage{id, "available", "x86_64"})
	}
	return out, nil
}
