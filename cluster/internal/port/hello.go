package port

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// The handshake. Who dials sends:
//
//	class (1 byte: 'R' or 'C'), "stint", version (1 byte),
//	cluster, own ID, ID of whom it means to reach: each a length (1 byte) and bytes
//
// and is answered with a code (1 byte, 0: welcome) and a sentence with its length
// (1 byte).
const (
	classRaft  = 'R'
	classCalls = 'C'

	magic   = "stint"
	version = 1
)

// Identity is who a node is. Cluster is empty until it has joined one.
type Identity struct{ Cluster, ID string }

// Hello is what a node says when it connects.
type Hello struct {
	Raft    bool   // a stream for Raft, else calls
	Cluster string // it belongs to, empty if to none yet
	From    string // its ID
	To      string // whom it means to reach; empty: whoever is there
}

// Code says why a connection was refused.
type Code uint8

const (
	WrongCluster  Code = 1 // the nodes belong to different clusters
	WrongReceiver Code = 2 // another node than the one that was meant answers here
	NotServing    Code = 3 // the node takes no part in Raft (yet)
	WrongVersion  Code = 4
)

// RefusedError is a refusal by the other side.
type RefusedError struct {
	Code Code
	Text string
}

func (e *RefusedError) Error() string { return "refused: " + e.Text }

var errHello = errors.New("not a handshake of stint")

func appendHello(dst []byte, h Hello) []byte {
	class := byte(classCalls)
	if h.Raft {
		class = classRaft
	}
	dst = append(append(dst, class), magic...)
	dst = append(dst, version)
	for _, s := range []string{h.Cluster, h.From, h.To} {
		s = s[:min(len(s), 255)]
		dst = append(append(dst, byte(len(s))), s...)
	}
	return dst
}

// readHello reads a handshake; what is none is noticed at its first byte.
func readHello(r *bufio.Reader) (h Hello, err error) {
	class, err := r.ReadByte()
	if err != nil {
		return h, err
	}
	if class != classRaft && class != classCalls {
		return h, errHello
	}
	h.Raft = class == classRaft
	var m [len(magic) + 1]byte
	if _, err := io.ReadFull(r, m[:]); err != nil {
		return h, err
	}
	if string(m[:len(magic)]) != magic {
		return h, errHello
	}
	if v := m[len(magic)]; v != version {
		return h, &RefusedError{WrongVersion, fmt.Sprintf("the port speaks version %d of the protocol, not %d: do all nodes run the same version of stint?", version, v)}
	}
	for _, s := range []*string{&h.Cluster, &h.From, &h.To} {
		n, err := r.ReadByte()
		if err != nil {
			return h, err
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return h, err
		}
		*s = string(b)
	}
	return h, nil
}

func appendAnswer(dst []byte, refused *RefusedError) []byte {
	if refused == nil {
		return append(dst, 0, 0)
	}
	text := refused.Text[:min(len(refused.Text), 255)]
	return append(append(dst, byte(refused.Code), byte(len(text))), text...)
}

func readAnswer(r io.Reader) error {
	var b [2]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	text := make([]byte, b[1])
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	if b[0] != 0 {
		return &RefusedError{Code(b[0]), string(text)}
	}
	return nil
}
