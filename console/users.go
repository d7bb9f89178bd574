package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role is what a person may do on a console.
type Role string

// The roles. An operator may also read.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // reads, and gives commands
)

// Person is a person as the console knows them.
type Person struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
}

// Users says who may use a console: people with a token, people whom a trusted proxy names, or both. Nobody else gets more than the
// page's own files, which hold no data.
type Users struct {
	Tokens []TokenUser
	Proxy  Proxy
}

// TokenUser is a person who shows a token.
type TokenUser struct {
	Person
	Token string // at least MinToken characters
}

// MinToken is how many characters a token has at least: what is shorter can be guessed.
const MinToken = 16

// Proxy is a trusted proxy that authenticates people and names them in headers. The zero Proxy is none.
//
// Headers are believed of requests that come from From alone. The proxy must therefore remove these headers from what it gets, and every
// process at those addresses can claim to be anybody.
type Proxy struct {
	From       []netip.Prefix // addresses of the proxy
	UserHeader string         // names the person; a request without it is not let in
	RoleHeader string         // lists roles or groups, with commas between them
	Operators  string         // the entry of RoleHeader that makes a person an operator; everybody else is a viewer
}

// ParseTokens reads a token file. Each line has a role, a name and a token, with spaces between them; empty lines and those that begin
// with # count for nothing. The error lists every wrong line by its number, and shows no token.
func ParseTokens(text string) ([]TokenUser, error) {
	var all []TokenUser
	var errs []error
	names, tokens := map[string]bool{}, map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("line %d: %s", i+1, fmt.Sprintf(format, args...)))
		}
		if len(fields) != 3 {
			wrong("has %d words: write ROLE NAME TOKEN, as in operator alice and her token", len(fields))
			continue
		}
		u := TokenUser{Person{Name: fields[1], Role: Role(fields[0])}, fields[2]}
		if u.Role != Viewer && u.Role != Operator {
			wrong("role is %q: give viewer or operator", fields[0])
		}
		if names[u.Name] {
			wrong("name %q is there twice: give each person one line", u.Name)
		}
		if len(u.Token) < MinToken {
			wrong("the token of %q has %d characters: give at least %d", u.Name, len(u.Token), MinToken)
		}
		if tokens[u.Token] {
			wrong("the token of %q is another person's, too: give each a token of their own", u.Name)
		}
		names[u.Name], tokens[u.Token] = true, true
		all = append(all, u)
	}
	if len(all) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there is no token: write lines of ROLE NAME TOKEN"))
	}
	return all, errors.Join(errs...)
}

// HasOperator reports whether anybody may give commands.
func (u Users) HasOperator() bool {
	return u.Proxy.Operators != "" || slices.ContainsFunc(u.Tokens, func(t TokenUser) bool { return t.Role == Operator })
}

// errBadToken says that a token was shown that belongs to no person.
var errBadToken = errors.New("the token is missing or wrong")

// person returns who sent a request. A bearer token goes before the browser's session, and both before the proxy's headers.
func (u Users) person(r *http.Request, now time.Time) (Person, bool) {
	if r.Header.Get("Authorization") != "" {
		p, err := u.bearer(r)
		return p.Person, err == nil
	}
	if c, err := r.Cookie(sessionCookie); err == nil {
		if p, ok := u.ofSession(c.Value, now); ok {
			return p, true
		}
	}
	return u.Proxy.person(r)
}

// bearer returns whose token a request shows.
func (u Users) bearer(r *http.Request) (found TokenUser, err error) {
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	err = errBadToken
	for _, t := range u.Tokens { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare([]byte(given), []byte(t.Token)) == 1 {
			found, err = t, nil
		}
	}
	return found, err
}

// person returns whom the proxy names.
func (p Proxy) person(r *http.Request) (Person, bool) {
	if len(p.From) == 0 || !p.sent(r) {
		return Person{}, false
	}
	name := strings.TrimSpace(r.Header.Get(p.UserHeader))
	// A header that is there twice is one that the proxy did not replace but add to.
	if name == "" || len(r.Header.Values(p.UserHeader)) > 1 {
		return Person{}, false
	}
	who := Person{Name: name, Role: Viewer}
	if p.RoleHeader == "" || p.Operators == "" || len(r.Header.Values(p.RoleHeader)) != 1 {
		return who, true
	}
	for _, role := range strings.Split(r.Header.Get(p.RoleHeader), ",") {
		if strings.TrimSpace(role) == p.Operators {
			who.Role = Operator
		}
	}
	return who, true
}

// sent reports whether a request comes from the proxy.
func (p Proxy) sent(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.From, func(x netip.Prefix) bool { return x.Contains(from.Addr().Unmap()) })
}

// A browser shows its token once and gets a session for it, which is a cookie that no script can read. The console keeps no sessions: a
// cookie holds when it ends and proves, by a code made with the token, that the token was known. So it survives a restart, and ends when
// the token leaves the file.
const (
	sessionCookie = "muster-console"
	sessionLasts  = 12 * time.Hour
)

func sessionCode(token, ends string) string {
	code := hmac.New(sha256.New, []byte(token))
	_, _ = code.Write([]byte("muster console session until " + ends))
	return hex.EncodeToString(code.Sum(nil))
}

func newSession(token string, now time.Time) string {
	ends := strconv.FormatInt(now.Add(sessionLasts).Unix(), 10)
	return ends + "." + sessionCode(token, ends)
}

// ofSession returns whose session a cookie is.
func (u Users) ofSession(cookie string, now time.Time) (found Person, ok bool) {
	ends, code, _ := strings.Cut(cookie, ".")
	unix, err := strconv.ParseInt(ends, 10, 64)
	if err != nil || now.Unix() >= unix {
		return Person{}, false
	}
	for _, t := range u.Tokens {
		if hmac.Equal([]byte(code), []byte(sessionCode(t.Token, ends))) {
			found, ok = t.Person, true
		}
	}
	return found, ok
}

// identity is how a request's sender is known.
type identity struct {
	Person
	known bool
	acts  bool // may give commands
}

// identify says who sent a request. A console without users is for everybody who reaches it, and only its token allows commands.
func (c *Console) identify(r *http.Request) identity {
	if c.o.Users == nil {
		return identity{known: true, acts: c.o.Token != ""}
	}
	p, known := c.o.Users.person(r, time.Now())
	return identity{Person: p, known: known, acts: known && p.Role == Operator && c.o.Act != nil}
}

// guarded lets in only people whom the console knows.
func (c *Console) guarded(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.identify(r).known {
			if len(c.o.Users.Tokens) > 0 { // by which the page knows that a token would help
				w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
			}
			problem(w, http.StatusUnauthorized, "%s", c.o.Users.howToEnter())
			return
		}
		h(w, r)
	}
}

func (u Users) howToEnter() string {
	if len(u.Tokens) == 0 {
		return "the proxy in front of the console names nobody: sign in there"
	}
	return "this console needs a token"
}

// postSession gives a browser a session for its token.
func (c *Console) postSession(w http.ResponseWriter, r *http.Request) {
	if c.o.Users == nil || len(c.o.Users.Tokens) == 0 {
		problem(w, http.StatusNotFound, "this console has no sessions")
		return
	}
	u, err := c.o.Users.bearer(r)
	if err != nil {
		problem(w, http.StatusUnauthorized, "%v", err)
		return
	}
	now := time.Now()
	c.setSession(w, r, newSession(u.Token, now), now.Add(sessionLasts))
	reply(w, u.Person)
}

// deleteSession ends a browser's session.
func (c *Console) deleteSession(w http.ResponseWriter, r *http.Request) {
	c.setSession(w, r, "", time.Unix(1, 0))
	reply(w, map[string]bool{"ok": true})
}

func (c *Console) setSession(w http.ResponseWriter, r *http.Request, value string, ends time.Time) {
	encrypted := r.TLS != nil || c.o.Users != nil && c.o.Users.Proxy.sent(r) && r.Header.Get("X-Forwarded-Proto") == "https"
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: value, Path: "/", Expires: ends, HttpOnly: true, Secure: encrypted, SameSite: http.SameSiteStrictMode})
}

// authorize returns who may give a command, or the status and the reason of a refusal. A foreign page can't make a browser send a bearer
// token; what a browser sends by itself, a cookie or what the proxy adds to it, counts only for requests of the console's own page.
func (c *Console) authorize(r *http.Request) (by string, status int, err error) {
	if c.o.Users == nil {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case c.o.Token == "":
			return "", http.StatusForbidden, errors.New("this console is read-only: start it with a token to allow actions")
		case subtle.ConstantTimeCompare([]byte(given), []byte(c.o.Token)) != 1:
			return "", http.StatusUnauthorized, errBadToken
		}
		return "", 0, nil
	}
	who := c.identify(r)
	switch {
	case !who.known:
		return "", http.StatusUnauthorized, errors.New(c.o.Users.howToEnter())
	case !who.acts:
		return "", http.StatusForbidden, fmt.Errorf("%s is a viewer here and may not give commands", who.Name)
	}
	if r.Header.Get("Authorization") == "" {
		if err := http.NewCrossOriginProtection().Check(r); err != nil {
			return "", http.StatusForbidden, fmt.Errorf("refusing a command of another site's page: %w", err)
		}
	}
	return who.Name, 0, nil
}
