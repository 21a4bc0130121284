package main

import (
	"errors"
	"io"
)

// backupCommand is `stint backup FILE`.
type backupCommand struct {
	File   string `arg:"" help:"File to write. It must not exist yet."`
	Dir    string `help:"Folder of the state of the stopped server." default:"./stint-data" placeholder:"DIR"`
	Config string `help:"YAML file to take --dir from." placeholder:"FILE"`
}

func (c *backupCommand) run(w io.Writer) error {
	return errors.New("backup needs the state file's package")
}

// inspectCommand is `stint inspect FILE`.
type inspectCommand struct {
	File string `arg:"" help:"State file (state.db in the folder of --dir) or backup."`
	Keys bool   `help:"List every key with its state too."`
}

func (c *inspectCommand) run(w io.Writer) error {
	return errors.New("inspect needs the state file's package")
}
