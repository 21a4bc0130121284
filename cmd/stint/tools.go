package main

import (
	"fmt"
	"io"
	"time"

	"github.com/stint-dev/stint/persist"
)

// backupCommand is `stint backup FILE`.
type backupCommand struct {
	File   string `arg:"" help:"File to write. It must not exist yet." example:"./backup.db"`
	Dir    string `help:"Folder of the state of the stopped server." default:"./stint-data" placeholder:"DIR"`
	Config string `help:"YAML file to take --dir from." placeholder:"FILE"`
}

func (c *backupCommand) run(w io.Writer) error {
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
	return persist.Inspect(c.File, w, persist.InspectOptions{Keys: c.Keys})
}
