# Joins this machine to a K3s cluster as an agent. Written by Muster (package nodes/ec2); no secret is in it.
set -euo pipefail
umask 077

imds=http://169.254.169.254
etc=/etc/rancher/k3s

die() {
	echo "muster: $*" >&2
	exit 1
}

# What this machine is. Version 2 of the metadata service wants a session.
session=$(curl -fsS --retry 10 --retry-connrefused --max-time 10 -X PUT \
	-H 'X-aws-ec2-metadata-token-ttl-seconds: 600' "$imds/latest/api/token") || die "the instance metadata service does not answer"
meta() {
	curl -fsS --retry 10 --retry-connrefused --max-time 10 -H "X-aws-ec2-metadata-token: $session" "$imds/latest/meta-data/$1"
}
id=$(meta instance-id)
zone=$(meta placement/availability-zone)
region=$(meta placement/region)
type=$(meta instance-type)

# The agent token, by this machine's role. Credentials go to curl by its standard input, not by its arguments.
case $token_service in
ssm)
	target=AmazonSSM.GetParameter
	body="{\"Name\":\"$token_name\",\"WithDecryption\":true}"
	key=Value
	;;
secretsmanager)
	target=secretsmanager.GetSecretValue
	body="{\"SecretId\":\"$token_name\"}"
	key=SecretString
	;;
esac
field() {
	sed -n 's/.*"'"$1"'"[[:space:]]*:[[:space:]]*"\([^"\\]*\)".*/\1/p' | head -n 1
}
fetch_with_cli() {
	case $token_service in
	ssm) aws --region "$region" --output text --query Parameter.Value ssm get-parameter --with-decryption --name "$token_name" ;;
	secretsmanager) aws --region "$region" --output text --query SecretString secretsmanager get-secret-value --secret-id "$token_name" ;;
	esac
}
fetch_with_curl() {
	local role credentials endpoint
	role=$(meta iam/security-credentials/) || return 1
	credentials=$(meta "iam/security-credentials/$role") || return 1
	endpoint="https://$token_service.$region.$(meta services/domain)/"
	printf 'user = "%s:%s"\nheader = "X-Amz-Security-Token: %s"\n' "$(field AccessKeyId <<<"$credentials")" \
		"$(field SecretAccessKey <<<"$credentials")" "$(field Token <<<"$credentials")" |
		curl -fsS --max-time 20 --config - --aws-sigv4 "aws:amz:$region:$token_service" -H "X-Amz-Target: $target" \
			-H 'Content-Type: application/x-amz-json-1.1' --data "$body" "$endpoint" | field "$key"
}
token=
for pause in 1 2 4 8 16 0; do # a role that was just attached takes a moment
	if command -v aws >/dev/null; then
		token=$(fetch_with_cli) || token=
	else
		token=$(fetch_with_curl) || token=
	fi
	[ -n "$token" ] && break
	sleep "$pause"
done
[ -n "$token" ] || die "the agent token can't be read: let this machine's role read $token_service $token_name"

mkdir -p "$etc/config.yaml.d"
printf '%s' "$token" >"$etc/muster-token"
cat >"$etc/config.yaml.d/50-muster.yaml" <<END
server: $server
token-file: $etc/muster-token
node-name: $id
kubelet-arg+:
  - provider-id=aws:///$zone/$id
node-label+:
  - topology.kubernetes.io/zone=$zone
  - topology.kubernetes.io/region=$region
  - node.kubernetes.io/instance-type=$type
END
list() { # a comma-separated list as one of YAML
	local items item
	IFS=, read -ra items <<<"$1"
	for item in "${items[@]}"; do
		echo "  - $item"
	done
}
if [ -n "$node_labels" ]; then
	list "$node_labels" >>"$etc/config.yaml.d/50-muster.yaml"
fi
if [ -n "$node_taints" ]; then
	{
		echo "node-taint+:"
		list "$node_taints"
	} >>"$etc/config.yaml.d/50-muster.yaml"
fi

# An image can bring K3s, its installer, or neither.
installer=/usr/local/bin/k3s-install.sh
if [ ! -x "$installer" ]; then
	installer=$(mktemp)
	curl -fsSL --retry 5 --max-time 60 -o "$installer" https://get.k3s.io || die "the K3s installer can't be fetched"
fi
if command -v k3s >/dev/null && [ -z "$k3s_version" ]; then
	export INSTALL_K3S_SKIP_DOWNLOAD=true
elif [ -n "$k3s_version" ]; then
	export INSTALL_K3S_VERSION=$k3s_version
fi

# What keeps the agent from joining goes to the console, where `muster nodes explain` finds it. Neither the agent's log nor the
# installer, which waits for the agent, does that. It ends when the kubelet answers, or after ten minutes.
agent_log() {
	if [ -d /run/systemd/system ]; then
		journalctl _SYSTEMD_UNIT=k3s-agent.service -o cat -n 50 --no-pager # without what systemd says of the unit
	else
		tail -n 50 /var/log/k3s-agent.log # on Alpine
	fi
}
report() {
	local pause now last=
	for pause in $report_after; do
		sleep "$pause"
		curl -fsS --max-time 5 -o /dev/null http://127.0.0.1:10248/healthz && return
		now=$(agent_log | grep -iE 'error|fatal|fail|reject|not ready|authorized|refused|time(d )?out|deadline|dial|no route|x509|no space' |
			tail -n 1 | sed 's/K10[0-9a-f]*::[^[:space:]"]*/[redacted]/g') || continue
		if [ "${now//[0-9]/}" != "$last" ]; then
			echo "muster: $id has not joined yet, its agent says: $now"
			last=${now//[0-9]/}
		fi
	done
}
report_after="10 10 20 20 30 30 60 60 60 60 60 60 60 60"
console=/dev/console
report >"$console" 2>/dev/null </dev/null &

INSTALL_K3S_EXEC="agent $agent_args" sh "$installer" || die "the K3s installer failed"
echo "muster: $id has started its K3s agent"
