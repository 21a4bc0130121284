//go:build unix

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout bounds the search for an order of one history, whose time grows
// without bound with what is unknown in it. The rounds are so short that it takes
// far less.
const checkTimeout = 30 * time.Second

// unchecked ends the sentence about a history that took too long.
const unchecked = "make the round shorter"

// violations checks a history, and tells in sentences what is wrong with it. What
// it cannot explain is written into the folder that keep gives.
func (h *history) violations(name string, keep func() string) (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wrong = append(wrong, h.wrong...)
	for _, part := range byKey(h.ops) {
		on := part[0].Input.(call).on
		model := modelOf(on.kind)
		verdict, info := porcupine.CheckOperationsVerbose(model, part, checkTimeout)
		if verdict == porcupine.Ok {
			continue
		}
		what := fmt.Sprintf("%s, key %s: no order of its %d operations gives these answers", name, on.key, len(part))
		if verdict == porcupine.Unknown {
			what = fmt.Sprintf("%s, key %s: %d operations could not be checked in %v", name, on.key, len(part), checkTimeout)
		}
		path := filepath.Join(keep(), name+"-"+on.key+".html")
		if err := porcupine.VisualizePath(model, info, path); err != nil {
			what += fmt.Sprintf("; the picture of it could not be written: %v", err)
		} else {
			what += "; see " + path
		}
		if verdict == porcupine.Unknown {
			what += ": " + unchecked
		}
		writeText(filepath.Join(keep(), name+"-"+on.key+".txt"), part)
		wrong = append(wrong, what)
	}
	return wrong
}

// writeText writes a history as lines, for those without a browser at hand.
func writeText(path string, ops []porcupine.Operation) {
	f, err := os.Create(path)
	if err != nil {
		return
	}
	defer f.Close()
	for _, op := range ops {
		until := time.Duration(op.Return).String()
		if !op.Output.(result).known {
			until = "?"
		}
		fmt.Fprintf(f, "%v – %s\tclient %d\t%s\t(%v)\n", time.Duration(op.Call), until, op.ClientId, describe(op.Input, op.Output), op.Metadata)
	}
}
