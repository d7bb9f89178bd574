package tchart

import (
	"slices"
	"strings"
	"sync"
)

// Strings are written by words: those that sensors of process tools are mostly
// named by have numbers. They are part of the format: the list can't change
// without a new version.
const wordList = "Ar O2 N2 H2 He Cl2 BCl3 HBr CF4 CHF3 CH2F2 C2F6 C4F6 C4F8 SF6 NF3 N2O NH3 SiH4 WF6 TEOS " +
	"Argon Oxygen Nitrogen Hydrogen Helium Susceptor Showerhead Shower Head Electrode Electrostatic Chuck ESC Edge Center Inner Outer Ring Zone " +
	"Upper Lower Top Btm Bottom Left Right Front Rear Liner Lid Wall Window Heater Coolant Chiller Foreline Throttle Manometer Baratron Turbo Pump Speed Backing " +
	"Exhaust Gate Vent Purge Backside Leak Rate Clamp Lift Pin Spacing Gap Position Angle Optical Emission OES Wavelength Intensity Endpoint Endpt Signal " +
	"Channel Spectrum Reflectometer Thickness Rotation RPM Slurry Down Force Torque Motor Current Velocity Source Bias Match Matching Series Shunt Capacitor Cap " +
	"Frequency Freq Forward Fwd Reflected Rfl Refl Delivered Generator Gen Voltage Volt Vpp Vdc DC RF TCP ICP HF LF Resistance Reactance Impedance Magnitude Phase Err Error " +
	"Temperature Temp Setpoint Set Point SP PV Actual Act Output Out Input In Average Avg Min Max Mean Total Count Counter Time Status State Mode Number No ID " +
	"Step Recipe Sensor LoadLock Load Tuner Tune Chamber CH Process Mass MFC Gas Liquid Level Humidity Pressure Press Flow Power Pwr Valve Vat Throt Water Air " +
	"tool chamber recipe lot wafer product slot etch clean dep strip test run ctx calibration"

const (
	wordEnd     = iota // of a string
	wordLiteral        // a byte follows as it is
	wordJoined         // the next word follows without a blank
	wordFirst          // number of the first word
)

// vocabulary is the list of words and what each first byte may begin, longest
// first.
type vocabulary struct {
	words []string
	by    [256][]uint8
}

var words = sync.OnceValue(func() *vocabulary {
	v := &vocabulary{words: strings.Fields(wordList)}
	for i, w := range v.words {
		v.by[w[0]] = append(v.by[w[0]], uint8(i))
	}
	for i := range v.by {
		slices.SortStableFunc(v.by[i], func(a, b uint8) int { return len(v.words[b]) - len(v.words[a]) })
	}
	return v
})

// at returns the number of the longest word that s begins with, or -1.
func (v *vocabulary) at(s string) int {
	if s == "" {
		return -1
	}
	for _, i := range v.by[s[0]] {
		if strings.HasPrefix(s, v.words[i]) {
			return int(i)
		}
	}
	return -1
}

// wordChances are what strings are coded by: symbols by whether a word went
// before, and literals alike everywhere.
type wordChances struct {
	symbol  [2][1 << 8]chance
	literal [1 << 8]chance
}

// text writes a string.
func (w *rangeWriter) text(c *wordChances, s string) {
	v, after := words(), 0
	for i := 0; i < len(s); {
		if after == 1 && s[i] == ' ' {
			if n := v.at(s[i+1:]); n >= 0 {
				w.bits(c.symbol[after][:], uint64(n+wordFirst), 8)
				i += 1 + len(v.words[n])
				continue
			}
		}
		if n := v.at(s[i:]); n >= 0 {
			if after == 1 {
				w.bits(c.symbol[after][:], wordJoined, 8)
			}
			w.bits(c.symbol[0][:], uint64(n+wordFirst), 8)
			i += len(v.words[n])
			after = 1
			continue
		}
		w.bits(c.symbol[after][:], wordLiteral, 8)
		w.bits(c.literal[:], uint64(s[i]), 8)
		i++
		after = 0
	}
	w.bits(c.symbol[after][:], wordEnd, 8)
}

// text appends a string to dst.
func (r *rangeReader) text(c *wordChances, dst []byte) []byte {
	v, after := words(), 0
	for start := len(dst); len(dst)-start <= MaxTextBytes && !r.bad; {
		switch n := int(r.bits(c.symbol[after][:], 8)); {
		case n == wordEnd:
			return dst
		case n == wordLiteral:
			dst = append(dst, byte(r.bits(c.literal[:], 8)))
			after = 0
		case n == wordJoined:
			after = 0
		case n-wordFirst < len(v.words):
			if after == 1 {
				dst = append(dst, ' ')
			}
			dst = append(dst, v.words[n-wordFirst]...)
			after = 1
		default:
			r.bad = true
		}
	}
	r.bad = true
	return dst
}
