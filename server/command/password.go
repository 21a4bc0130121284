package command

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
)

// Password is the one password of a server, or none. The zero value is none.
// Any number of goroutines may use one.
//
// Only a digest is kept, so that nothing which shows a Password shows the word
// itself. The memory of the process may have it all the same: in the options it
// came from, and in what clients have sent. Digests are of one length and are compared in a time that
// does not depend on them, so the time of a refusal tells nothing about how
// much of a guess was right, nor how long the password is.
type Password struct {
	digest atomic.Pointer[[sha256.Size]byte] // nil: no password
}

// Set makes plain the password; empty means none. Connections that are
// authenticated stay so.
func (p *Password) Set(plain []byte) {
	if len(plain) == 0 {
		p.digest.Store(nil)
		return
	}
	sum := sha256.Sum256(plain)
	p.digest.Store(&sum)
}

// Required says whether there is a password.
func (p *Password) Required() bool { return p.digest.Load() != nil }

// Check says whether plain is the password. With no password, everything is.
func (p *Password) Check(plain []byte) bool {
	want := p.digest.Load()
	if want == nil {
		return true
	}
	got := sha256.Sum256(plain)
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
