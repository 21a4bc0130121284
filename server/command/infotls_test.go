package command

import (
	"testing"
	"time"
)

func TestInfoTellsWhenTheCertificateEnds(t *testing.T) {
	s := newServer()
	got := infoLines(t, callFlat(t, s, newConn(s), "INFO", "tls"))
	if len(got) != 5 || got["tls_enabled"] != "0" || got["tls_certificate_valid_from"] != "0" || got["tls_certificate_valid_until"] != "0" {
		t.Errorf("without TLS INFO tls has %v", got)
	}
	s.TLS = func() TLSInfo {
		return TLSInfo{ValidFrom: time.Unix(1000, 0), ValidUntil: time.Unix(2000, 1), ClientCertificates: true}
	}
	was := s.Traffic
	s.Traffic = func() Traffic {
		t := was()
		t.TLSFailed = 7
		return t
	}
	got = infoLines(t, callFlat(t, s, newConn(s), "INFO", "tls"))
	for name, want := range map[string]string{
		"tls_enabled": "1", "tls_certificate_valid_from": "1000", "tls_certificate_valid_until": "2000",
		"tls_client_certificates": "1", "tls_handshakes_failed": "7",
	} {
		if got[name] != want {
			t.Errorf("%s:%s, want %s", name, got[name], want)
		}
	}
}
