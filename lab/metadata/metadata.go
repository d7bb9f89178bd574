// Package metadata is the instance metadata service of a lab's machines, version 2 only: what
// a machine asks for it gets with a session, and it is told about itself by the address that
// it asks from.
package metadata

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Instance is what a machine is told about itself.
type Instance struct {
	ID       string
	Address  string
	Zone     string
	Region   string
	Type     string
	UserData string
	Notices  Notices
}

// Domain is where the region's services are: ssm.REGION.Domain.
const Domain = "amazonaws.com"

// role is that of every machine. What it may do is the region's to say, which knows no keys.
const role = "node"

// tree returns what there is to ask for, by path below the version.
func (i Instance) tree() map[string]string {
	credentials, _ := json.MarshalIndent(map[string]string{ // strings always can
		"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "simulated", "SecretAccessKey": "simulated", "Token": "simulated",
		"LastUpdated": time.Now().UTC().Format(time.RFC3339), "Expiration": time.Now().Add(6 * time.Hour).UTC().Format(time.RFC3339),
	}, "", "  ")
	document, _ := json.MarshalIndent(map[string]string{
		"instanceId": i.ID, "instanceType": i.Type, "privateIp": i.Address, "availabilityZone": i.Zone, "region": i.Region,
	}, "", "  ")
	tree := map[string]string{
		"meta-data/instance-id":                      i.ID,
		"meta-data/instance-type":                    i.Type,
		"meta-data/local-ipv4":                       i.Address,
		"meta-data/placement/availability-zone":      i.Zone,
		"meta-data/placement/region":                 i.Region,
		"meta-data/services/domain":                  Domain,
		"meta-data/iam/security-credentials/" + role: string(credentials),
		"dynamic/instance-identity/document":         string(document),
		"user-data":                                  i.UserData,
	}
	i.Notices.add(tree)
	return tree
}

// lookUp returns what is at a path. At that of a folder it is the names in it, of which those
// of folders end with a slash.
func (i Instance) lookUp(path string) (text string, ok bool) {
	tree := i.tree()
	if text, ok = tree[path]; ok {
		return text, text != "" || path != "user-data"
	}
	var names []string
	for file := range tree {
		below, inside := strings.CutPrefix(file, strings.TrimSuffix(path, "/")+"/")
		if !inside {
			continue
		}
		if name, _, folder := strings.Cut(below, "/"); folder {
			below = name + "/"
		}
		names = append(names, below)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "\n"), len(names) > 0
}

// version is that of the paths: the latest, or that of a day.
var version = regexp.MustCompile(`^/(latest|\d{4}-\d{2}-\d{2})/`)

// Service answers machines. It is made by New.
type Service struct {
	find func(address string) (Instance, bool)

	mu       sync.Mutex
	sessions map[string]session // by token
}

// session is a machine's permission to ask.
type session struct {
	address string
	expires time.Time
}

// New returns a service for the machines that find returns by their addresses.
func New(find func(address string) (Instance, bool)) *Service {
	return &Service{find: find, sessions: map[string]session{}}
}

// ServeHTTP answers one request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	begin := version.FindString(r.URL.Path)
	path := strings.TrimPrefix(r.URL.Path, begin)
	switch {
	case begin == "":
		http.NotFound(w, r)
	case r.Method == http.MethodPut && path == "api/token":
		s.begin(w, r, address)
	case r.Method != http.MethodGet:
		http.Error(w, "", http.StatusMethodNotAllowed)
	case !s.valid(r.Header.Get("X-Aws-Ec2-Metadata-Token"), address):
		http.Error(w, "", http.StatusUnauthorized)
	default:
		s.answer(w, r, address, path)
	}
}

func (s *Service) answer(w http.ResponseWriter, r *http.Request, address, path string) {
	i, ok := s.find(address)
	text, found := i.lookUp(path)
	if !ok || !found {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(text)) // a machine that is gone gets nothing
}

// begin begins a session of as many seconds as are asked for, 1 to 21,600.
func (s *Service) begin(w http.ResponseWriter, r *http.Request, address string) {
	seconds, err := strconv.Atoi(r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds"))
	if err != nil || seconds < 1 || seconds > 21600 {
		http.Error(w, "", http.StatusBadRequest)
		return
	}
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	token := hex.EncodeToString(b)
	s.mu.Lock()
	s.sessions[token] = session{address, time.Now().Add(time.Duration(seconds) * time.Second)}
	s.mu.Unlock()
	_, _ = w.Write([]byte(token))
}

// valid reports whether a token is of a session of the machine that has not expired.
func (s *Service) valid(token, address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.sessions[token]
	return ok && found.address == address && time.Now().Before(found.expires)
}
