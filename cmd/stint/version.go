package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version is set by the linker for releases and by `make build`
// (-X main.version=…). Without it buildVersion asks the build information.
var version string

// buildVersion returns the version of this binary: what the linker was told,
// else the module's version, else "dev".
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

type versionCommand struct{}

func (versionCommand) run(w io.Writer) error {
	_, err := fmt.Fprintf(w, "stint %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionFlag is --version, which does the same and looks at nothing else.
type versionFlag bool

// BeforeReset is called by kong when it has found the flag.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	err := versionCommand{}.run(app.Stdout)
	app.Exit(exitOK)
	return err
}
