package main

import (
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/persist"
)

// backupCommand is `stint backup FILE`.
type backupCommand struct {
	File string `arg:"" help:"File to write. It must not exist yet." example:"./backup.db"`
	Dir  string `help:"Folder of the state of the stopped server." default:"./stint-data" placeholder:"DIR"`
	From string `help:"Address of a running server with durability strict, to copy its cluster's state from: host:port, tls:host:port or unix:/path. --dir does not count then." placeholder:"ADDR"`

	PasswordFile string `help:"For --from: file that holds the password: its first line." placeholder:"FILE"`
	Cacert       string `help:"For --from: PEM file of the authorities that the server's certificate is checked by." placeholder:"FILE"`
	Cert         string `help:"For --from: PEM file of a certificate to show to the server." placeholder:"FILE"`
	Key          string `help:"For --from: PEM file of the key of --cert." placeholder:"FILE"`
	Config       string `help:"YAML file to take --dir from." placeholder:"FILE"`
}

func (c *backupCommand) run(w io.Writer) error {
	if c.From != "" {
		return c.online(w)
	}
	if _, raftLog, err := persist.Holds(c.Dir); err == nil && raftLog {
		return fmt.Errorf("the folder %s is that of a cluster's node: start it, and back its cluster up with --from ADDR", c.Dir)
	}
	info, err := persist.Backup(c.Dir, c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "copied %s to %s and verified it: %d bytes, %d changes, last flush %s\n",
		info.Source, c.File, info.Bytes, info.Changes, info.Saved.UTC().Format(time.RFC3339))
	return err
}

// inspectCommand is `stint inspect FILE`.
type inspectCommand struct {
	File string `arg:"" help:"State file (state.db in the folder of --dir) or backup, or the folder. No server may use it." example:"./stint-data"`
	Keys bool   `help:"List every key with its state too: a line each, sorted. Limits are written as the commands read them: limit=10 rate=100/m is what THROTTLE key 10 100/m has made."`
}

func (c *inspectCommand) run(w io.Writer) error {
	if done, err := inspectClusterBackup(c.File, w); done {
		return err
	}
	return persist.Inspect(c.File, w, persist.InspectOptions{Keys: c.Keys})
}
