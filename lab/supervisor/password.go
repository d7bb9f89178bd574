package supervisor

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/crypto/scrypt"
)

// hashFormat is K3s': version, salt, then the parameters N (as a power of two), r and p of
// scrypt, and the derived key in base64 without padding.
const (
	hashFormat  = "$%d:%x:%d:%d:%d:%s"
	hashVersion = 1
)

// Parameters of new hashes, as K3s chooses them.
const (
	hashN, hashR, hashP   = 15, 8, 1
	hashLength, saltBytes = 64, 8
)

// errWrongPassword says that a node's password is not the one that its name came with first.
var errWrongPassword = errors.New("the password does not match")

// hashed returns what K3s keeps of a node's password.
func hashed(password string) (string, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	key, err := scrypt.Key([]byte(password), salt, 1<<hashN, hashR, hashP, hashLength)
	if err != nil {
		return "", fmt.Errorf("hashing a node's password: %w", err)
	}
	return fmt.Sprintf(hashFormat, hashVersion, salt, hashN, hashR, hashP, base64.RawStdEncoding.EncodeToString(key)), nil
}

// verify compares a password with a hash. The error is errWrongPassword if they differ.
func verify(hash, password string) error {
	var version, n, r, p int
	var salt []byte
	var encoded string
	if _, err := fmt.Sscanf(hash, hashFormat, &version, &salt, &n, &r, &p, &encoded); err != nil {
		return fmt.Errorf("reading the hash of a node's password: %w", err)
	}
	// A larger N would ask for gigabytes of memory.
	if version != hashVersion || n < 1 || n > 20 {
		return fmt.Errorf("reading the hash of a node's password: version %d with N=2^%d is not known", version, n)
	}
	want, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("reading the hash of a node's password: %w", err)
	}

	got, err := scrypt.Key([]byte(password), salt, 1<<n, r, p, len(want))
	if err != nil {
		return fmt.Errorf("hashing a node's password: %w", err)
	}
	if subtle.ConstantTimeCompare(got, want) != 1 {
		return errWrongPassword
	}
	return nil
}
