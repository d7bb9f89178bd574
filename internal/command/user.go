package command

import (
	"os"
	"os/user"
)

// UserName returns the name of the user that runs the process, for the records of who did
// something; empty if neither the system nor the environment knows it, as in a container.
func UserName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return os.Getenv("USER")
}
