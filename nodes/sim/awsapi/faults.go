package awsapi

import "sync"

// Fault is something that goes wrong with requests. Action, After and Times say with which, the other fields what; with none of them
// the requests are throttled.
type Fault struct {
	Action string // which requests: an action's name; "" for all
	After  int    // let this many such requests pass first
	Times  int    // then hit this many; 0: all

	Code    string // refuse with this error code and Status
	Status  int    // of Code; 0: 400, from 500 on it is the service's fault
	Garbage bool   // answer 200 with Body instead of a reply, without an effect
	Body    string
	Cut     int  // send only this many bytes of the real reply, then cut the connection
	Drop    bool // do it, and cut the connection instead of replying
	Stall   bool // neither do it nor reply
	Late    bool // do it when the client has gone away
}

// hits reports whether the fault hits a request, and counts it.
func (f *Fault) hits(action string) bool {
	switch {
	case f.Action != "" && f.Action != action:
		return false
	case f.After > 0:
		f.After--
		return false
	case f.Times == usedUp:
		return false
	}
	if f.Times > 0 {
		f.Times--
		if f.Times == 0 {
			f.Times = usedUp
		}
	}
	return true
}

// usedUp is the Times of a fault that has hit as many requests as it was to.
const usedUp = -1

// faults are what goes wrong with requests and which permissions are missing.
type faults struct {
	mu     sync.Mutex
	active []*Fault
	denied map[string]bool // by permission
}

func (f *faults) add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = append(f.active, &fault)
}

func (f *faults) deny(permissions []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range permissions {
		f.denied[p] = true
	}
}

// heal ends all of them.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = nil
	clear(f.denied)
}

// next returns the fault that hits a request.
func (f *faults) next(action string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.active {
		if one.hits(action) {
			return *one, true
		}
	}
	return Fault{}, false
}

// denies reports whether a permission is missing.
func (f *faults) denies(permission string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.denied[permission]
}
