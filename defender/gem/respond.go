package gem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/secs"
)

// errNoConnection is why equipment isn't told of an alarm while the link is down.
var errNoConnection = errors.New("there is no connection")

// Respond tells equipment of an alarm that its chamber opens or escalates, as the plan says.
// What became of it is reported.
func (h *Host) Respond(ctx context.Context, n defender.AlarmNotice) {
	chamber := n.Context.Chamber
	s := h.sessions[chamber.Tool]
	begins := n.Event == defender.AlarmOpened || n.Event == defender.AlarmEscalated
	if s == nil || !begins {
		return
	}
	plan := s.kind.Chambers[chamber.Name].OnAlarm
	for _, r := range plan.requests(n) {
		report := Report{What: Responded, Tool: chamber.Tool, Run: n.Context.TChart().String(), Text: r.does}
		if err := s.tell(ctx, r.message); err != nil {
			report.Text = fmt.Sprintf("%s failed: %v", r.does, err)
		}
		h.config.Report(report)
	}
}

// request is one message of a response.
type request struct {
	does    string
	message secs.Message
}

// terminalText is how long a text on the equipment's terminal may be, as SEMI E5 has it.
const terminalText = 120

// requests returns what equipment is told of an alarm.
func (r *Response) requests(n defender.AlarmNotice) []request {
	var list []request
	if r.Terminal {
		text := fmt.Sprintf("%s run %s: %s", n.Context.Chamber.Name, n.Context.ID, n.Reason)
		text = text[:min(len(text), terminalText)]
		list = append(list, request{"message to the terminal", secs.New(10, 3, secs.L(secs.B(0), secs.A(text)))})
	}
	if r.Command != "" {
		parameters := secs.L()
		for _, name := range slices.Sorted(maps.Keys(r.Parameters)) {
			parameters.Items = append(parameters.Items, secs.L(secs.A(name), secs.A(r.Parameters[name])))
		}
		list = append(list, request{"command " + r.Command, secs.New(2, 41, secs.L(secs.A(r.Command), parameters))})
	}
	return list
}

// tell sends a message over the connection that there is, and returns why it is not accepted.
func (s *session) tell(ctx context.Context, m secs.Message) error {
	conn := s.conn.Load()
	if conn == nil {
		return errNoConnection
	}
	reply, err := conn.Request(ctx, m)
	if err != nil {
		return err
	}
	code := codeOf(reply.Body())
	later := m.Is(2, 41) && code == 4 // it is accepted, and will be done
	if code != 0 && !later {
		return fmt.Errorf("the equipment refuses %s with %v: is it online and remote?", m.Name(), reply)
	}
	return nil
}

// notAcknowledged stands for a reply without a code.
const notAcknowledged = -1

// codeOf returns the code of a reply that is one, or a list that begins with one.
func codeOf(i secs.Item) int {
	if i.Format == secs.List && i.Len() > 0 {
		i = i.Items[0]
	}
	if code, ok := i.Code(); ok {
		return int(code)
	}
	return notAcknowledged
}
