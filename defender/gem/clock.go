package gem

import (
	"fmt"
	"strings"
	"time"
)

// shortTime is how long a time of whole seconds is.
const shortTime = 12

// parseClock reads a time of the equipment's clock in one of the formats of SEMI E5: 12 or
// 16 digits in the equipment's zone, or the extended one, which may have a zone itself.
func parseClock(text string, zone *time.Location) (time.Time, error) {
	text = strings.TrimSpace(text)
	var layout string
	switch {
	case len(text) == shortTime && digits(text):
		// Two digits of a year are those of this century.
		text, layout = "20"+text, "20060102150405"
	case len(text) == 16 && digits(text):
		text, layout = text[:14]+"."+text[14:], "20060102150405.00"
	case strings.HasSuffix(text, "Z") || len(text) > 6 && strings.ContainsAny(text[len(text)-6:], "+-"):
		layout = time.RFC3339Nano
	default:
		layout = "2006-01-02T15:04:05.999999999"
	}
	at, err := time.ParseInLocation(layout, text, zone)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is no time of SECS-II: set the equipment's TimeFormat to 1, 16 digits", text)
	}
	return at.UTC(), nil
}

func digits(text string) bool {
	return strings.Trim(text, "0123456789") == ""
}

// samplePeriod returns a period as S2F23 has it: hhmmss, with hundredths if there are any.
func samplePeriod(d time.Duration) string {
	whole := d / time.Second
	text := fmt.Sprintf("%02d%02d%02d", whole/3600, whole/60%60, whole%60)
	if hundredths := d % time.Second / (10 * time.Millisecond); hundredths != 0 {
		text += fmt.Sprintf("%02d", hundredths)
	}
	return text
}
