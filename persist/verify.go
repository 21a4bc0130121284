package persist

import "github.com/stint-dev/stint/engine"

// verify reads everything in a state file that counts, as a restart would, and
// returns how many changes that is.
func (r *reader) verify() (changes int64, err error) {
	err = r.chunks(func(p chunkPlace, payload []byte) error {
		err := engine.VisitChunk(payload, func(*engine.Change) error {
			changes++
			return nil
		})
		if err != nil {
			return damaged("chunk %d of %s: %w", p.index, p, err)
		}
		return nil
	})
	return changes, refuse(r.path, err)
}
