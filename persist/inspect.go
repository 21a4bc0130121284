package persist

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stint-dev/stint/engine"
	"github.com/stint-dev/stint/engine/limit"
)

// InspectOptions says what Inspect writes besides the summary.
type InspectOptions struct {
	Keys bool // every key with its limit and state, sorted by database and key
}

// Inspect describes a state file, or the one in a folder, for people: when and
// by whom it was written, what it holds, and whether it would load. It needs
// the memory that a server with this state needs, and for the keys, to sort
// them, that of the names of one database again. The file, which no server may
// have open, is only read. What could be told before an error was found is
// written all the same.
//
// Errors wrap ErrLocked, ErrForeign, ErrDamaged or ErrFormat, or are the
// system's.
func Inspect(path string, w io.Writer, o InspectOptions) error {
	return forTool(inspect(path, w, o))
}

func inspect(path string, w io.Writer, o InspectOptions) error {
	path, err := stateFile(path)
	if err != nil {
		return err
	}
	r, err := openReader(path, true)
	if err != nil {
		return err
	}
	defer r.Close()
	out := bufio.NewWriter(w)
	err = r.describe(out, o)
	if flushed := out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("write: %w", flushed)
	}
	return err
}

func (r *reader) describe(w io.Writer, o InspectOptions) error {
	h := r.hdr
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-16s "+format+"\n", append([]any{name + ":"}, args...)...)
	}
	line("file", "%s", r.path)
	line("size", "%d bytes, %d in use", r.size, r.bolt.Used())
	line("format", "%d", h.format)
	line("created", "%s by stint %s", when(h.created), version(h.createdBy))
	line("last flush", "%s by stint %s, number %d", when(h.saved), version(h.writtenBy), h.sequence)
	line("latest decision", "%s", when(h.latest))
	line("base", "generation %d, %d chunks, %d bytes", h.base.id, h.base.chunks, h.base.bytes)
	chunks := uint64(0)
	for _, e := range h.eras {
		chunks += e.chunks
	}
	line("deltas", "%d chunks, %d bytes (eras: %d)", chunks, h.deltaBytes(), len(h.eras))

	ks, err := engine.New(engine.Options{})
	if err != nil {
		return err
	}
	if err := r.load(engineKeyspace{ks}); err != nil {
		line("verified", "no: it would not load")
		return refuse(r.path, err)
	}
	line("verified", "yes: every checksum and every record")

	tx := ks.Begin(h.latest)
	defer tx.End()
	for db := range uint8(engine.Databases) {
		tx.Select(db)
		counts := map[limit.Kind]int{}
		total := 0
		eachKey(tx, func(_ []byte, k limit.Kind) {
			counts[k]++
			total++
		})
		if total == 0 {
			continue
		}
		text := fmt.Sprintf("%d keys", total)
		for k := limit.KindBucket; k <= limit.KindLog; k++ {
			if counts[k] > 0 {
				text += fmt.Sprintf(", %d %s", counts[k], k)
			}
		}
		line(fmt.Sprintf("db%d", db), "%s", text)
	}
	if !o.Keys {
		return nil
	}
	for db := range uint8(engine.Databases) {
		tx.Select(db)
		// The keys are looked at when the scan is over: until a step of it is,
		// a lock is held.
		var keys []string
		eachKey(tx, func(key []byte, _ limit.Kind) { keys = append(keys, string(key)) })
		slices.Sort(keys)
		for _, key := range keys {
			if i, ok := tx.Inspect([]byte(key)); ok {
				if _, err := fmt.Fprintf(w, "db%d %q %s\n", db, key, describeKey(i)); err != nil {
					return fmt.Errorf("write: %w", err)
				}
			}
		}
	}
	return nil
}

const scanCount = 256

// eachKey gives every key of the selected database to f. Nobody writes here,
// so a scan gives each once.
func eachKey(tx *engine.Tx, f func([]byte, limit.Kind)) {
	for cursor := uint64(0); ; {
		if cursor = tx.Scan(cursor, scanCount, f); cursor == 0 {
			return
		}
	}
}

// describeKey writes a key's limit as the commands read it, and its state.
func describeKey(i engine.Info) string {
	l := i.Limit
	text := fmt.Sprintf("%s limit=%d", i.Kind, l.A)
	if i.Kind == limit.KindBucket || i.Kind == limit.KindLeak {
		text += " rate=" + limit.Rate{Count: l.B, Period: l.C}.String()
	} else {
		text += " period=" + limit.PeriodString(l.C)
	}
	text += fmt.Sprintf(" used=%d remaining=%d reset_ms=%d", i.Used, i.Remaining, i.ResetMs)
	if i.Kind == limit.KindLog {
		text += fmt.Sprintf(" entries=%d", i.Entries)
	}
	return text
}

func when(ns int64) string {
	if ns == 0 {
		return "never"
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

func version(v string) string {
	if v == "" {
		return "of no version"
	}
	return v
}
