package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAHelloThatIsSentIsReadAndNotAByteMore(t *testing.T) {
	for _, h := range []Hello{
		{Version: 1, Cluster: "0123", From: "n1.00", To: "n2.00"},
		{Version: 1, Raft: true, From: "x"},
		{Version: 1, Cluster: strings.Repeat("c", nameMost), From: strings.Repeat("f", nameMost), To: strings.Repeat("t", nameMost)},
	} {
		b, err := appendHello(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(append(b, "next"...))
		got, err := readHello(iotest.OneByteReader(r))
		if err != nil || got != h {
			t.Errorf("sent %+v, read %+v, %v", h, got, err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "next" {
			t.Errorf("what follows the handshake must be left alone: %q is left", rest)
		}
	}
}

func TestANameThatIsTooLongIsNoHello(t *testing.T) {
	if _, err := appendHello(nil, Hello{From: strings.Repeat("f", nameMost+1)}); err == nil {
		t.Error("a name cut short could be another node's")
	}
}

// versions makes a hello of another release.
func versions(least, most byte, extra string) []byte {
	b, _ := appendHello(nil, Hello{Cluster: "c", From: "new.1", To: "a.1"})
	b[1+len(magic)], b[2+len(magic)] = least, most
	at := helloHead - 2
	binary.LittleEndian.PutUint16(b[at:], binary.LittleEndian.Uint16(b[at:])+uint16(len(extra)))
	return append(b, extra...)
}

func TestAVersionThatBothSpeakIsChosen(t *testing.T) {
	h, err := readHello(bytes.NewReader(versions(1, 7, "fields of a later version")))
	if err != nil || h.Version != 1 || h.From != "new.1" || h.To != "a.1" {
		t.Errorf("a later version that speaks ours too must be let in: %+v, %v", h, err)
	}
	h, err = readHello(bytes.NewReader(versions(2, 7, "")))
	refused := new(RefusedError)
	if !errors.As(err, &refused) || refused.Code != WrongVersion || h.From != "new.1" {
		t.Errorf("a version without ours must be refused by its name: %+v, %v", h, err)
	}
}

func TestWhatIsNoHelloIsSeenAtItsFirstByte(t *testing.T) {
	for what, sent := range map[string]string{
		"HTTP": "G", "a Redis client": "*", "inline commands": "P", "TLS": "\x16", "nothing known": "\x00",
	} {
		// The reader would wait for ever for a second byte.
		never, w := io.Pipe()
		go func() { _, _ = w.Write([]byte(sent)) }()
		if _, err := readHello(never); !errors.Is(err, errStranger) && !errors.Is(err, errNoTLS) {
			t.Errorf("%s: %v", what, err)
		}
		_ = never.Close()
	}
}

func TestAnAnswerThatIsSentIsRead(t *testing.T) {
	if v, err := readAnswer(bytes.NewReader(appendAnswer(nil, 1, nil))); v != 1 || err != nil {
		t.Errorf("a welcome became version %d, %v", v, err)
	}
	long := &RefusedError{WrongReceiver, strings.Repeat("x", 300)}
	_, err := readAnswer(bytes.NewReader(appendAnswer(nil, 0, long)))
	refused := new(RefusedError)
	if !errors.As(err, &refused) || refused.Code != WrongReceiver || refused.Text != long.Text[:255] {
		t.Errorf("a refusal became %v", err)
	}
	if _, err := readAnswer(strings.NewReader("HTTP/1.1 400 Bad Request\r\n")); !errors.Is(err, errStranger) {
		t.Errorf("another protocol became %v", err)
	}
	if _, err := readAnswer(bytes.NewReader(appendAnswer(nil, 9, nil))); err == nil {
		t.Error("a version that was not offered must not be accepted")
	}
}

func FuzzHello(f *testing.F) {
	good, _ := appendHello(nil, Hello{Raft: true, Cluster: "c", From: "a.1", To: "b.2"})
	f.Add(good)
	f.Add(versions(2, 3, "more"))
	f.Add([]byte("CONNECT example.com:443 HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := readHello(r)
		if read := len(b) - r.Len(); read > helloHead+helloMost {
			t.Fatalf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		again, err := appendHello(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := readHello(bytes.NewReader(again)); err != nil || same != h {
			t.Fatalf("%+v became %+v, %v", h, same, err)
		}
		if h.From == "" || h.Version != 1 {
			t.Fatalf("let in: %+v", h)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(appendAnswer(nil, 1, nil))
	f.Add(appendAnswer(nil, 0, &RefusedError{NotServing, "not now"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := readAnswer(bytes.NewReader(b))
		if err == nil && (!bytes.HasPrefix(b, []byte(magic+"\x00")) || v != b[len(magic)+1]) {
			t.Fatalf("%q was taken for a welcome", b)
		}
	})
}
