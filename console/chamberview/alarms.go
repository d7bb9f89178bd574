package chamberview

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
)

// AlarmOf shows an alarm.
func AlarmOf(a defender.AlarmStatus) console.Alarm {
	x := console.Alarm{ID: alarmID(a.Chamber, a.Opened), Tool: a.Chamber.Tool, Chamber: a.Chamber.Name, Run: a.Opened, At: a.Since, Text: a.Opened + ": " + a.Reason, State: a.Status()}
	if a.Count > 1 {
		x.Text += fmt.Sprintf(" (%d runs)", a.Count)
	}
	if k := a.Acknowledged; k != nil {
		x.By, x.Note = k.By, k.Note
	}
	return x
}

// alarmID is a chamber's alarm as a command's target; parseAlarmID reads it.
func alarmID(c defender.Chamber, opened string) string { return c.String() + " " + opened }

func parseAlarmID(id string) (defender.Chamber, string, error) {
	chamber, opened, ok := strings.Cut(id, " ")
	if !ok {
		return defender.Chamber{}, "", fmt.Errorf("%w: %q names no alarm: write chamber and run, as tool001:chamber1 lot7", console.ErrUnknownTarget, id)
	}
	c, err := defender.ParseChamber(chamber)
	if err != nil {
		return c, "", fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	}
	return c, opened, nil
}

// Acknowledge acknowledges an alarm by its ID on the console. Its error matches [console.ErrUnknownTarget] for an alarm that is not
// there, and [console.ErrDoneAlready] for one that another person acknowledged first.
func Acknowledge(ctx context.Context, nc *nats.Conn, id, by, note string) error {
	chamber, opened, err := parseAlarmID(id)
	if err != nil {
		return err
	}
	a := defender.Acknowledgement{Chamber: chamber, Opened: opened, By: by, Note: note, At: time.Now().UTC()}
	kept, err := defender.Acknowledge(ctx, nc, a)
	switch {
	case errors.Is(err, defender.ErrNoAlarm):
		return fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	case err != nil:
		return err
	case kept != a:
		return fmt.Errorf("%w: %s acknowledged it at %s", console.ErrDoneAlready, kept.By, kept.At.UTC().Format(time.RFC3339))
	}
	return nil
}
