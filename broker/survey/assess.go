package survey

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Row is one failure, and what it does to this installation.
type Row struct {
	Failure string `json:"failure"`
	OK      bool   `json:"ok"`   // nothing acknowledged is lost, or no setting could prevent it
	Text    string `json:"text"` // what is lost, and what to do about it
}

// syncAlways is what to do against a power cut.
const syncAlways = "set sync_interval: always in each server's jetstream block"

// Assess says which failures the group with this data stream survives on these servers.
func Assess(servers []Server, group, data string) []Row {
	a := assessment{servers: servers}
	for _, st := range merged(servers) {
		switch {
		case st.Name == data || strings.HasPrefix(st.Name, data+"-"):
			a.data = append(a.data, st)
			a.group = append(a.group, st)
		case strings.HasPrefix(st.Name, "KV_"+group+"-"), st.Name == "KV_stable-ids":
			a.group = append(a.group, st)
		}
	}
	if len(a.data) == 0 {
		return []Row{{Failure: "the group's streams", Text: fmt.Sprintf("No server that was asked has a copy of stream %s: name the stream with --stream, start a worker, or give the monitoring endpoints of all servers with --monitor.", data)}}
	}
	return slices.Concat(a.state(), a.processes(), a.power(), a.storage())
}

type assessment struct {
	servers []Server
	data    []Stream // with the messages
	group   []Stream // these, and those of the buckets
}

func (a assessment) replicas() int {
	least := a.group[0].Replicas
	for _, st := range a.group {
		least = min(least, st.Replicas)
	}
	return least
}

// state says how the servers are now: a copy that is behind now can't stand in for
// another one.
func (a assessment) state() []Row {
	healthy := Row{Failure: "as it is now", OK: true, Text: fmt.Sprintf("%d servers asked, all healthy, all copies current; streams have %d replicas.", len(a.servers), a.replicas())}
	var wrong []string
	versions := map[string]bool{}
	for _, s := range a.servers {
		versions[s.Version] = true
		if s.Health != "ok" {
			wrong = append(wrong, fmt.Sprintf("server %s is not healthy (%s)", s.Name, s.Health))
		}
	}
	for _, st := range a.group {
		if st.Memory {
			wrong = append(wrong, fmt.Sprintf("%s is kept in memory and ends with its server", st.Name))
		}
		for _, p := range st.Peers {
			if p.Offline || !p.Current {
				wrong = append(wrong, fmt.Sprintf("the copy of %s on %s is offline or behind (lag %d)", st.Name, p.Name, p.Lag))
			}
		}
	}
	if len(versions) > 1 {
		wrong = append(wrong, "the servers have different versions")
	}
	if len(wrong) > 0 {
		healthy.OK, healthy.Text = false, sentence(strings.Join(wrong, "; "))+" Repair this first: what follows assumes current copies."
	}
	return []Row{healthy}
}

func (a assessment) processes() []Row {
	one := Row{Failure: "one NATS server's process ends", OK: true}
	if a.replicas() > 1 {
		one.Text = "Nothing is lost. Streams that it led elect another leader in 4 to 9 s; their slots wait."
	} else {
		one.Text = "Nothing is lost. The slots with their only copy there wait until it is back."
	}
	return []Row{
		{Failure: "a worker's process, or all of them", OK: true, Text: "Nothing is lost. Others take the slots over; without any, the next workers elect a leader."},
		one,
		{Failure: "all NATS servers' processes end", OK: true, Text: "Nothing is lost. The group waits and resumes."},
	}
}

// power: the server that syncs least often decides.
func (a assessment) power() []Row {
	always, worst := true, Server{}
	for _, s := range a.servers {
		if !s.SyncAlways {
			always = false
			if s.Sync >= worst.Sync {
				worst = s
			}
		}
	}
	one := Row{Failure: "power of one server is cut", OK: always, Text: "Nothing is lost."}
	all := Row{Failure: "power of all servers is cut", OK: always, Text: "Nothing is lost: every server syncs what it acknowledges. The group waits and resumes."}
	if always {
		return []Row{one, all}
	}
	loss := fmt.Sprintf("Up to %s of acknowledged messages are lost, and streams, consumers and keys that are younger (server %s does not sync before it acknowledges)", interval(worst.Sync), worst.Name)
	all.Text = fmt.Sprintf("%s: %s.", loss, syncAlways)
	one.Text = all.Text
	if a.replicas() > 1 {
		one.Text = fmt.Sprintf("%s if another copy is down or behind at that moment: %s.", loss, syncAlways)
	}
	return []Row{one, all}
}

func (a assessment) storage() []Row {
	full := Row{Failure: "the disk is full", OK: true, Text: "Nothing is lost: the data stream's limit is below the servers' storage, and publishers get an error when it is reached."}
	var sum, room int64
	for i, s := range a.servers {
		if i == 0 || s.MaxStorage < room {
			room = s.MaxStorage
		}
	}
	for _, st := range a.data {
		switch {
		case st.MaxBytes <= 0:
			full.OK = false
			full.Text = fmt.Sprintf("Stream %s has no size limit, so a backlog can take the space of the group's leases, and the group stops: nats stream edit %s --max-bytes SIZE --discard new, with SIZE well below %s.", st.Name, st.Name, size(room))
		case st.Discard != "new":
			full.OK = false
			full.Text = fmt.Sprintf("Stream %s drops its oldest messages, unprocessed, when it is full: nats stream edit %s --discard new.", st.Name, st.Name)
		}
		sum += max(st.MaxBytes, 0)
	}
	if full.OK && sum > room*9/10 {
		full.OK = false
		full.Text = fmt.Sprintf("The data streams may take %s of the %s that a server has, which leaves too little for the group's leases: lower --max-bytes.", size(sum), size(room))
	}
	volume := Row{Failure: "the volume of one server is lost", OK: true, Text: "Nothing is lost. The server copies everything from the others."}
	if a.replicas() < 2 {
		volume.Text = "What it held is lost: with one replica there is no other copy. Use three servers and --replicas 3 if that must not be."
	}
	return []Row{
		full, volume,
		{Failure: "the group's buckets are lost, its data stream is kept", OK: true, Text: "No message is lost. Workers create them again and continue."},
		{Failure: "all volumes are lost, or an older snapshot is restored", OK: true, Text: "What they held, or what is younger, is lost; no setting prevents that. Restore buckets and result store from the same moment."},
		{Failure: "an operator deletes a stream or bucket", OK: true, Text: "What it held is lost; no setting prevents that. Workers create it again and report it."},
	}
}

func interval(d time.Duration) string {
	if d%time.Minute == 0 && d > 0 {
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return d.String()
}

func size(n int64) string {
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }
