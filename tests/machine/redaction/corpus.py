"""Secrets of every kind, and what only looks like one.

The secrets are put together when a test runs, out of chance and of beginnings that are cut in
two: nothing in this file has the form of one, for those who look for leaks in a repository.
"""

import base64
import json
import random
import string
from typing import NamedTuple

from outrider.contract.ids import Prefix, derived_id

_chance = random.Random(5)


def _id(prefix: Prefix) -> str:
    """Return an id as this program makes them, the same in every process that runs the tests."""
    return derived_id(prefix, 1_795_000_000_000, prefix)


_LETTERS = string.ascii_letters + string.digits


def _some(length: int, alphabet: str = _LETTERS) -> str:
    """Return some characters, at least one of them a digit and one a letter."""
    middle = "".join(_chance.choice(alphabet) for _ in range(length - 2))
    return f"{_chance.choice([c for c in alphabet if c.isalpha()])}{middle}7"


def _hex(length: int) -> str:
    return _some(length, "0123456789abcdef")


def _base64(length: int) -> str:
    return _some(length, _LETTERS + "+/")


def _jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{_some(43, _LETTERS + '_-')}"


def _code(groups: int) -> str:
    letters = "BCDFGHJKLMNPQRSTVWXZ23456789"
    made = ["".join(_chance.choice(letters) for _ in range(4)) for _ in range(groups)]
    return "-".join(["B" + made[0][1:], *made[1:]])


class Secret(NamedTuple):
    """A secret within a text. `hidden` must be gone; `text` is where it stands."""

    kind: str
    text: str
    hidden: str


def _bare(kind: str, *tokens: str) -> list[Secret]:
    return [Secret(kind, token, token) for token in tokens]


def _in(kind: str, *pairs: tuple[str, str]) -> list[Secret]:
    """`{}` in a template stands for the secret."""
    return [Secret(kind, template.replace("{}", value), value) for template, value in pairs]


def _pem(label: str, lines: int = 12) -> tuple[str, str]:
    """Return a private key with its secret part."""
    body = "\n".join(_base64(64) for _ in range(lines))
    dashes = "-" * 5
    return f"{dashes}BEGIN {label}{dashes}\n{body}\n{dashes}END {label}{dashes}", body


def _word(begin: str = "hunter") -> str:
    """Return a password of the kind that people choose, another one each time."""
    return f"{begin}{_some(5, string.ascii_lowercase + string.digits)}"


def secrets() -> list[Secret]:
    """Return the corpus."""
    return [*_tokens(), *_places(), *_names(), *_blocks(), *_splits()]


def _tokens() -> list[Secret]:
    """Return secrets that show by themselves what they are."""
    upper = string.ascii_uppercase + "234567"
    web = _LETTERS + "_-"
    return [
        *_bare(
            "outrider",
            "or" + "k_" + _some(38),
            "om" + "t_" + _some(43),
            "whs" + "ec_" + _some(40),
            _some(43),
            _code(2),
            _code(3),
        ),
        *_bare(
            "jwt",
            _jwt(sub="1", exp=1),
            _jwt(email="ada@example.org"),
            _jwt(scope="x" * 900),
            _jwt()[:-20],
            ".".join([_jwt().split(".")[0], *(_some(n, web) for n in (40, 16, 60, 22))]),
        ),
        *_in("jwt", ("session-{}", _jwt(sub="2"))),
        *_bare(
            "model",
            "sk-a" + "nt-api03-" + _some(93),
            "sk-a" + "nt-oat01-" + _some(90),
            "sk-" + "proj-" + _some(120, web),
            "sk" + "-" + _some(48),
            "sk-" + "svcacct-" + _some(60),
            "sk-" + "or-v1-" + _hex(64),
            "h" + "f_" + _some(34),
            "gs" + "k_" + _some(52),
            "xa" + "i-" + _some(80),
            "r8" + "_" + _some(37),
            "AI" + "za" + _some(35),
            "ya" + "29." + _some(60),
            "GOC" + "SPX-" + _some(28),
            "nva" + "pi-" + _some(64),
            "pp" + "lx-" + _some(48),
            "lsv2" + "_pt_" + _hex(32),
            "pcs" + "k_" + _some(60),
            "tv" + "ly-" + _some(32),
            "tgp" + "_v1_" + _some(43),
            "cs" + "k-" + _some(48),
            "AQ" + ".Ab8" + _some(46),
            "jin" + "a_" + _some(60),
            "sk" + "_" + _hex(48),
            "fw" + "_" + _some(24),
        ),
        *_bare(
            "forge",
            "gh" + "p_" + _some(36),
            "gh" + "o_" + _some(36),
            "gh" + "s_" + _some(36),
            "gh" + "u_" + _some(36),
            "gh" + "r_" + _some(76),
            "github" + "_pat_" + _some(22) + "_" + _some(59),
            "glp" + "at-" + _some(20),
            "glr" + "t-" + _some(20),
            "GR13" + "48941" + _some(20),
            "np" + "m_" + _some(36),
            "py" + "pi-AgEIcHlwaS5vcmc" + _some(90),
            "glp" + "tt-" + _hex(40),
            "rubyg" + "ems_" + _hex(48),
            "ci" + "o" + _some(32),
            "oy" + "2" + _some(43),
            "ATAT" + "T3xFfGF0" + _some(180, web),
            "ATCT" + "T3xFfGN0" + _some(180, web),
            "ATB" + "B" + _some(32),
            "AK" + "C" + _some(70),
            "CCIP" + "AT_" + _some(60),
            "sgp" + "_" + _hex(40),
            "sq" + "p_" + _hex(40),
            "bku" + "a_" + _hex(40),
        ),
        *_bare(
            "cloud",
            "AK" + "IA" + _some(16, upper),
            "AS" + "IA" + _some(16, upper),
            "dop_" + "v1_" + _hex(64),
            "hv" + "s." + _some(90),
            "dckr" + "_pat_" + _some(27),
            "da" + "pi" + _hex(32),
            "tsk" + "ey-auth-" + _some(30),
            "gls" + "a_" + _some(41),
            "pscale" + "_tkn_" + _some(43),
            "sb" + "p_" + _hex(40),
            "NR" + "AK-" + _some(27),
            _some(14) + ".atla" + "sv1." + _some(67),
            "pu" + "l-" + _hex(40),
            "dp" + ".pt." + _some(43),
            "dp" + ".st.dev." + _some(40),
            "op" + "s_eyJ" + _some(90),
            "sb" + "_secret_" + _some(31),
            "na" + "pi_" + _some(60),
            "nf" + "p_" + _some(36),
            "HR" + "KU-" + _some(36),
            "fm" + "2_" + _some(90),
            "LTA" + "I" + _some(20),
            "AV" + "NS_" + _some(19),
            "vercel" + "_blob_rw_" + _some(16) + "_" + _some(30),
            "sntry" + "s_" + _some(80),
            "pn" + "u_" + _some(36),
            "AGE-SECRET" + "-KEY-1" + _some(58, upper),
            "s." + _some(24),
            _some(3) + "8" + "Q~" + _some(34),
            "1/" + "/0" + _some(60, web),
        ),
        *_bare(
            "service",
            "xo" + "xb-" + "123456789012-" + _some(24),
            "xo" + "xp-" + "1234567890-1234567890-" + _hex(32),
            "xap" + "p-1-A01-" + "123-" + _hex(64),
            "sk" + "_live_" + _some(24),
            "rk" + "_live_" + _some(99),
            "sk" + "_test_" + _some(24),
            "S" + "G." + _some(22) + "." + _some(43),
            "shp" + "at_" + _hex(32),
            "12345678" + "9:AA" + _some(33),
            "M" + _some(23) + "." + _some(6) + "." + _some(27),
            "SK" + _hex(32),
            _hex(32) + "-us" + "12",
            "lin" + "_api_" + _some(40),
            "fig" + "d_" + _some(40, web),
            "PM" + "AK-" + _hex(24) + "-" + _hex(34),
            "nt" + "n_" + _some(46),
            "secre" + "t_" + _some(43),
            "pat" + _some(14) + "." + _hex(64),
            "xkey" + "sib-" + _hex(64) + "-" + _some(16),
            "sq0" + "csp-" + _some(43),
            "pat-" + "na1-" + "-".join(_hex(n) for n in (8, 4, 4, 4, 12)),
            "CFP" + "AT-" + _some(43),
            "dt0" + "c01." + _some(24, upper) + "." + _some(64, upper),
            "ke" + "y-" + _hex(32),
            "re" + "_" + _some(8) + "_" + _some(24),
            "shippo" + "_live_" + _hex(40),
            "EZA" + "K" + _some(54),
            "wak" + "a_" + _some(36),
            "access-" + "sandbox-" + "-".join(_hex(n) for n in (8, 4, 4, 4, 12)),
            "sy" + "t_" + _some(12) + "_" + _some(20) + "_" + _some(6),
            "EAA" + "C" + _some(100),
            "2" + _some(26) + "_" + _some(21),
            "$2" + "b$12$" + _some(53),
            "$6" + "$salt$" + _some(86),
            "$argon2" + "id$v=19$m=65536,t=3,p=4$" + _some(22) + "$" + _some(43),
        ),
        *_in(
            "service",
            ("1/1201234567890123:{}", _hex(32)),
            ("(xo" + "xb-{})", _some(40)),
            ("my_gh" + "p_{}", _some(36)),
            ("id=12345,gl" + "pat-{};x", _some(20)),
        ),
    ]


def _places() -> list[Secret]:
    """Return secrets that are known by where they stand: URLs, headers, commands, files."""
    return [
        *_in(
            "cloud",
            ("AccountName=x;Account" + "Key={};EndpointSuffix=y", _base64(86) + "=="),
            ("aws_secret_" + "access_key = {}", _base64(40)),
            ("https://x.blob.example/c?sv=2024&si" + "g={}", _some(44) + "%3D"),
            ("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccess" + "Key={}", _base64(43) + "="),
            ("https://s3.example/k?X-Amz-Security-" + "Token={}&x=1", _some(80)),
            ("https://app.example/cb#access_" + "token={}&state=1", _some(30)),
        ),
        *_in(
            "service",
            ("https://hooks.slack" + ".com/services/T01/B02/{}", _some(24)),
            ("https://discord" + ".com/api/webhooks/123456789012345678/{}", _some(68)),
            ("https://discordapp" + ".com/api/v10/webhooks/123456789012345679/{}/slack", _some(68)),
            (
                "https://canary.discord" + ".com/api/webhooks/123456789012345670/{}?wait=1",
                _some(60),
            ),
            ("https://x.webhook.office" + ".com/webhookb2/{}", _some(36) + "@" + _some(36)),
            ("https://hooks.zapier" + ".com/hooks/catch/{}", "1234567/" + _some(7)),
            ("https://maker.ifttt" + ".com/trigger/x/with/key/{}", _some(22)),
            ("https://api.telegram" + ".org/bot{}/getMe", "987654321" + ":" + _some(35)),
            ("https://open.feishu" + ".cn/open-apis/bot/v2/hook/{}", _some(36)),
            ("https://chat.googleapis.com/v1/spaces/A/messages?key=k&tok" + "en={}", _some(43)),
        ),
        *_in(
            "url",
            ("postgres://ada:{}@db.example/app", "hunter2"),
            ("postgresql://ada:{}@db/app", "p@ss/w#rd"),
            ("redis://:{}@cache:6379/0", _some(20)),
            ("https://ada:{}@git.example/x.git", _some(12)),
            ("https://{}@git.example/x.git", _some(40)),
            ("amqp://guest:{}@mq:5672", "gu-est"),
            ("mongodb+srv://u:{}@c.example", "a%40b"),
            ("postgres://u:{}@", "p/w"),
            ("postgres://u:{}@db", "pw/with/slashes"),
            ("https://ada:{}@git.example/x", "raw/slash?and#more"),
            ("mysql://r:{}@127.0.0.1:3306/x", "12/34"),
            ("ftp://ada:{}@files.example", _word()),
            ("ldap://cn=ada:{}@ldap.example", _word()),
            ("https://x-access-token:{}@github.com/o/r", _word()),
            ("smtp://ada@x.org:{}@mail:587", _word()),
            ("cloudinary://123456789012345:{}@demo", _some(27)),
            ("socks5://u:{}@proxy:1080", _word()),
            ("https://{}@o1.ingest.sentry.io/2", _hex(32)),
            ("jdbc:oracle:thin:scott/{}@//db:1521/x", _word()),
            ("jdbc:postgresql://db/app?user=ada&pass" + "word={}", _word()),
            ("ada:{}@tcp(db:3306)/app", _word()),
            ("postgres://ada:{}@[::1]:5432/x", _word()),
            ("POSTGRES://ADA:{}@DB/X", _word()),
        ),
        *_in(
            "header",
            ("Authorization: Bearer {}", _some(30)),
            ("authorization: Basic {}", base64.b64encode(b"ada:lovelace").decode()),
            ("Proxy-Authorization: Digest {}", _some(20)),
            ("Cookie: theme=dark; session={}", _some(24)),
            ("Set-Cookie: sid={}; Path=/; HttpOnly", _some(32)),
            ("X-Api-Key: {}", _some(20)),
            ("curl -H 'Authorization: {}' https://x", _some(25)),
            ("bearer {}", _some(18)),
            ("PRIVATE-TOKEN: {}", _some(20)),
            ("X-Vault-Token: {}", _some(24)),
            ("x-goog-api-key:{}", _some(39)),
            ("Ocp-Apim-Subscription-Key: {}", _hex(32)),
            ('Authorization: Token token="{}"', _some(24)),
            ("Authorization: ApiKey {}", _some(40)),
            ('Authorization: Digest username="ada", realm="x", response="{}"', _hex(32)),
            (
                "Authorization: AWS4-HMAC-SHA256 Credential=x/2026/eu, SignedHeaders=host, Signature={}",
                _hex(64),
            ),
            ("{'Authorization': 'Bearer {}'}", _some(31)),
            ("('authorization', 'Basic {}')", _some(16) + "=="),
            ('["X-Auth-Token", "{}"]', _some(22)),
            ("Cookie: PHPSESSID={}", _some(26)),
            ('{"name": "Authorization", "value": "{}"}', _some(26)),
        ),
        *_in(
            "command",
            ("curl -u ada:{} https://x", "s3same"),
            ("sshpass -p {} ssh host", "letmein9"),
            ("sshpass -p{} ssh host", _word()),
            ("mysql -u root -p{} app", _word()),
            ("mysqldump --single-transaction -uroot -p'{}' app", _word("p@ss ")),
            ("mariadb -h db -p{}", _word()),
            ("7z x -p{} a.7z", _word()),
            ("docker login -u ada -p {} registry.example", _word()),
            ("podman login --username ada -p {} x", _word()),
            ("redis-cli -h c -a {} ping", _word()),
            ("mongosh -u ada -p {} --host h", _word()),
            ("smbclient //h/s -U ada%{}", _word()),
            ("ldapsearch -D cn=ada -w {} -b dc=x", _word()),
            ("unzip -P {} a.zip", _word()),
            ("sqlcmd -S h -U sa -P {}", _word()),
            ("openssl enc -d -pass pass:{} -in a", _word()),
            ("openssl rsa -passin pass:{}", _word()),
            ("keytool -list -storepass {} -alias a", _word()),
            ("echo {} | sudo -S apt update", _word()),
            ("echo '{}' | docker login -u a --password-stdin", _word()),
            ("net use x: \\\\h\\s /user:ada {}", _word()),
            ("xfreerdp /u:ada /p:{} /v:h", _word()),
            ("vault login {}", _word("root")),
            ("gpg --batch --passphrase {} -d a", _word()),
            ("wget --http-password={} https://x", _word()),
            ("svn co --password {} https://x", _word()),
            ("curl --cookie 'sid={}' https://x", _some(20)),
            ('curl -b "sid={}" https://x', _some(21)),
            ("curl --user 'ada:{}' https://x", _word()),
            ("curl -uada:{} https://x", _word()),
            ("lftp -u ada,{} h", _word()),
            ("sqlplus scott/{}@db", _word()),
            ("htpasswd -bc .htpasswd ada {}", _word()),
            ("rabbitmqctl add_user ada {}", _word()),
            ("kubectl create secret generic x --from-literal=pass" + "word={}", _word()),
            ("helm install x --set auth.pass" + "word={}", _word()),
            ("twine upload -u __token__ -p {} dist/x", _word()),
            ("ipmitool -H h -U ada -P {} power on", _word()),
            ("snmpget -v3 -A {} -X y h", _word()),
            ("nmcli dev wifi connect x pass" + "word {}", _word()),
            ("wpa_passphrase ssid {}", _word()),
            ("mysqladmin -u root pass" + "word {}", _word()),
            ("influx -username a -pass" + "word {}", _word()),
        ),
        *_in(
            "setting",
            ("set -x GITHUB_TOKEN {}", _some(20)),
            ("set -gx API_KEY {}", _some(21)),
            ("set -Ux DB_PASSWORD '{}'", _word()),
            ("set --export --global AUTH_TOKEN {}", _some(22)),
            ("setenv DB_PASSWORD {}", _word()),
            ("setx API_KEY {}", _some(20)),
            ("ENV DB_PASSWORD {}", _word()),
            ("$env:API_TOKEN = '{}'", _some(20)),
            ("aws configure set aws_secret_" + "access_key {}", _base64(40)),
            ("npm config set //r.example/:_authToken {}", _some(36)),
            ("git config x.token {}", _some(20)),
            ("gh secret set DEPLOY_KEY --body {}", _some(30)),
            ("heroku config:set DB_PASSWORD={}", _word()),
            ("docker run -e DB_PASSWORD={} x", _word()),
            ("ARG NPM_TOKEN={}", _some(20)),
            ("fly secrets set SECRET_KEY={}", _some(20)),
            ("export PGPASSWORD={}; psql", _word()),
        ),
        *_in(
            "file",
            ("machine h login ada password {}", "pw0rd"),
            ("machine h\n  login ada\n  password {}", _word()),
            ("machine h\n\tlogin ada\n\taccount x\n\tpassword {}\n", _word()),
            ("default\nlogin anonymous\npassword {}", _word()),
            ("  login ada\n  password {}", _word()),
            ("machine h password {}", _word()),
            ("db.example:5432:app:ada:{}", _word()),
            ("*:*:*:ada:{}", _word()),
            ("localhost:*:app:ada:{}", _word("p\\:")),
            ('"auth": "{}"', base64.b64encode(b"ada:pw1").decode()),
            ('{"auths":{"ghcr.io":{"auth":"{}"}}}', base64.b64encode(b"ada:lovelace2").decode()),
            ('"identitytoken": "{}"', _some(30)),
            ("//registry.example/:_authToken={}", _some(36)),
            ("//registry.example/:_auth={}", base64.b64encode(b"ada:pw2").decode()),
            ('//registry.example/:_password="{}"', base64.b64encode(b"pw3rd").decode()),
            ("PrivateKey = {}", _base64(43) + "="),
            ("PresharedKey = {}", _base64(43) + "="),
            ('psk="{}"', _word()),
            ("root:$6" + "$abc${}:19000:0", _some(86)),
            ("Server=h;User Id=sa;Pass" + "word={};Encrypt=yes", _word()),
            ("Driver=x;Uid=sa;Pwd={};", _word()),
            ("host=db user=ada pass" + "word={} dbname=x", _word()),
            ("CREATE USER ada IDENTIFIED BY '{}'", _word()),
            ("ALTER ROLE ada WITH PASS" + "WORD '{}'", _word()),
            ("ALTER USER ada ENCRYPTED PASS" + "WORD '{}' VALID", _word()),
            (
                "client-key-data: {}",
                base64.b64encode(
                    b"-----BEGIN RSA PRIV" + b"ATE KEY-----\n" + _base64(90).encode()
                ).decode(),
            ),
            ('"kty":"RSA","d":"{}"', _some(86, _LETTERS + "_-")),
        ),
    ]


def _names() -> list[Secret]:
    """Return secrets that a name gives away."""
    return [
        *_in(
            "named",
            ("password={}", "hunter3"),
            ("DB_PASSWORD: {}", "correct-horse"),
            ('"password": "{}"', "with space"),
            ("'api_key' => '{}'", _some(16)),
            ("apiKey={}", _some(16)),
            ("export GITHUB_TOKEN={}", _some(22)),
            ("CLIENT_SECRET='{}'", _some(32)),
            ("passphrase: {}", "tr0ub4dor"),
            ("--password {}", "swordfish"),
            ("--api-key={}", _some(20)),
            ("tool --token {} run", _some(18)),
            ('{\\"password\\": \\"{}\\"}', "inner1"),
            ("https://x.example/?access_token={}&a=1", _some(20)),
            ("device_code={}", _some(30)),
            ("user_code: {}", "WDJB-MJHT"),
            ("secretKey := `{}`", "bäckticks"),
            ("MYSQL_PWD={}", "rootroot"),
            ("Password: {}", "Tr0ub4dor&3"),
            ('refresh_token = "{}"', "shorty"),
            ("db_pass={}", "qwerty1"),
            ("password: {}", "correct horse battery staple"),
            ("password = {}", "two words9"),
            ('"pass": "{}"', _word()),
            ("pass={}", _word()),
            ("user_pass: {}", _word()),
            ("Passwort: {}", _word()),
            ("mot de passe : {}", _word()),
            ("contraseña={}", _word()),
            ("senha: {}", _word()),
            ("пароль: {}", _word()),
            ("密码：{}", _word()),
            ("wachtwoord={}", _word()),
            ("mnemonic: {}", "legal winner thank year wave sausage worth useful"),
            ('"seedPhrase": "{}"', "letter advice cage absurd amount doctor"),
            ("[sudo] password for ada: {}", _word()),
            ("Enter passphrase for key '/h/id_rsa': {}", _word()),
            ("The password is {}", _word()),
            ('set the password to "{}"', _word()),
            ("password '{}'", _word()),
            ("app_key={}", _some(16)),
            ("consumerKey: '{}'", _some(20)),
            ("subscription-key={}", _hex(32)),
            ("JSESSIONID={}", _hex(32)),
            ("connect.sid={}", _some(30)),
            ("signing_key: {}", _base64(40)),
            ("vault_pass={}", _word()),
            ("webhook_secret = '{}'", _some(20)),
            ("secret_key_base: {}", _hex(64)),
            ("define('DB_PASSWORD', '{}');", _word()),
            ('define( "AUTH_KEY", "{}" )', _some(40)),
            (':password => "{}"', _word()),
            ("os.environ['API_KEY'] = '{}'", _some(16)),
            ("-Dkeystore.password={}", _word()),
            ("ansible_become_pass={}", _word()),
            ("spring.datasource.password={}", _word()),
            ('password := "{}"', _word()),
            ("const token: string = '{}'", _some(20)),
            ('let API_KEY: &str = "{}";', _some(20)),
            ('String password = "{}";', _word()),
            ("password=>{}", _word()),
            ("password\t=\t{}", _word()),
            ("PASSWORD?={}", _word()),
            ("login(password=\"{}\", user='a')", _word()),
            ("token%3D{}", _some(20)),
            ('{"type":"password","value":"{}"}', _word()),
            ("otp: {}", "492817"),
            ("pin code = {}", "8251"),
        ),
        *_in(
            "pair",
            ("- name: DB_PASSWORD\n  value: {}", _word()),
            ('- name: "API_TOKEN"\n  value: "{}"', _some(20)),
            ('{"name": "DB_PASSWORD", "value": "{}"}', _word()),
            ("key=API_KEY value={}", _some(16)),
            ('{"key":"secret","type":"text","value":"{}"}', _some(18)),
            ("{'Name': 'DbPassword', 'Value': '{}'}", _word()),
            ("ParameterKey=DBPassword,ParameterValue={}", _word()),
        ),
        *_in(
            "xml",
            ("<password>{}</password>", _word()),
            ('<Password type="text">{}</Password>', _word()),
            ("<ns:apiKey>{}</ns:apiKey>", _some(16)),
            ("<password><![CDATA[{}]]></password>", _word("a<b&")),
            ("<token>\n  {}\n</token>", _some(20)),
            ("<server><password>{}</password></server>", _word()),
            ('<add key="ApiKey" value="{}" />', _some(16)),
            ("<property name='db.password' value='{}'/>", _word()),
            ('<property name="password">{}</property>', _word()),
            ('<entry key="db.password">{}</entry>', _word()),
            ('<user password="{}"/>', _word()),
            ("<key>apiToken</key>\n\t<string>{}</string>", _some(16)),
            ('<string name="api_key">{}</string>', _some(16)),
            ("&lt;password&gt;{}&lt;/password&gt;", _word()),
        ),
        *_in(
            "yaml",
            ("password: |\n  {}\nnext: 1", _word()),
            ("password: >-\n  {}", _word()),
            ("x:\n  client_secret: |2-\n      {}\n  y: 1", _some(20)),
            ("token: |  # why\n  {}\n", _some(20)),
            ("- api_key: >\n    {}\n- z", _some(20)),
            ("password:\n  {}\nnext: 1", _word()),
            ("password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  {}", _hex(60)),
            ("password: &a {}", _word()),
            ("password: !!str {}", _word()),
            ('"password":\n  "{}"', _word()),
            ('password = """\n{}\n"""', _word()),
            ("data:\n  password: {}", base64.b64encode(b"kubernetes1").decode()),
        ),
    ]


def _blocks() -> list[Secret]:
    """Return keys that take several lines."""
    private = "PRIVATE " + "KEY"
    keys = [
        _pem(label)
        for label in (
            private,
            f"RSA {private}",
            f"EC {private}",
            f"OPENSSH {private}",
            f"ENCRYPTED {private}",
            f"PGP {private} BLOCK",
        )
    ]
    whole, body = keys[0]
    cut_short, headless = whole.split("\n"), whole.split("\n")
    quoted, quoted_body = _pem(f"DSA {private}")
    indented, indented_body = _pem(private, 4)
    openvpn, hexadecimal = _pem("OpenVPN Static key V1", 1)
    ssh_body = "\n".join(_base64(64) for _ in range(6))
    ssh_label, dashes = f"SSH2 ENCRYPTED {private}", "-" * 4
    ssh = f"{dashes} BEGIN {ssh_label} {dashes}\n{ssh_body}\n{dashes} END {ssh_label} {dashes}"
    putty = "\n".join(_base64(64) for _ in range(3))
    return [
        *[Secret("private-key", text, secret) for text, secret in keys],
        Secret("private-key", "\n".join(cut_short[:-4]), cut_short[3]),
        Secret("private-key", "\n".join(headless[5:]), headless[7]),
        Secret("private-key", whole.replace("\n", "\\n"), body.replace("\n", "\\n")),
        Secret("private-key", quoted.replace("\n", "\n> "), quoted_body.split("\n")[5]),
        Secret("private-key", indented.replace("\n", "\n    "), indented_body.split("\n")[2]),
        Secret("private-key", openvpn, hexadecimal),
        Secret("private-key", ssh, ssh_body),
        Secret("private-key", f"Private-Lines: 3\n{putty}\nPrivate-MAC: x", putty),
    ]


def _splits() -> list[Secret]:
    """Return secrets with control sequences in them, as a terminal writes them."""
    token, named, url = "gh" + "p_" + _some(36), _word("colour"), _word("colour")
    gitlab, anthropic, slack = (
        "glp" + "at-" + _some(20),
        "sk-a" + "nt-api03-" + _some(93),
        _some(40),
    )
    bold, spaced, linked = "gh" + "o_" + _some(36), "np" + "m_" + _some(36), "hv" + "s." + _some(90)
    moved, literal = "gh" + "s_" + _some(36), "gh" + "u_" + _some(36)
    return [
        Secret("split", f"\x1b[32m{token[:9]}\x1b[0m\x1b[1m{token[9:]}\x1b[0m", token),
        Secret(
            "split", "".join(f"\x1b[38;5;{i}m{c}" for i, c in enumerate(gitlab)) + "\x1b[m", gitlab
        ),
        Secret("split", f"pass\x1b[1mword\x1b[0m=\x1b[33m{named}\x1b[0m", named),
        Secret("split", f"postgres://ada:\x1b[31m{url[:4]}\x1b[0m{url[4:]}@db", url),
        Secret("split", f"{anthropic[:20]}\x1b[K\x1b[?25l{anthropic[20:]}", anthropic),
        Secret("split", f"xo\x1b(Bxb-{slack[:10]}\x1b]0;title\x07{slack[10:]}", slack),
        Secret("split", "".join(f"{c}\b{c}" for c in bold), bold),
        Secret("split", "\u200b".join(spaced), spaced),
        Secret("split", f"\x1b]8;;https://x\x1b\\{linked[:30]}\x1b]8;;\x1b\\{linked[30:]}", linked),
        Secret("split", f"{moved[:12]}\x1b[1;13H{moved[12:]}", moved),
        Secret("split", f"{literal[:12]}\\u001b[31m{literal[12:]}", literal),
    ]


def innocents() -> list[str]:
    """Return what must stay as it is."""
    return [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",  # git
        "9f86d08",
        "commit e3b0c44298fc1c149afbf4c8996fb92427ae41e4",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",  # SHA-256
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "d41d8cd98f00b204e9800998ecf8427e",  # MD5
        "sha512-" + base64.b64encode(bytes(range(64))).decode(),  # integrity
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "F47AC10B-58CC-4372-A567-0E02B2C3D479",
        "018f6f2e-0000-7000-8000-000000000001",
        _id("session"),
        _id("machine"),
        _id("msg"),
        f"{_id('machine')}:session:{_id('session')}",
        f"{_id('machine')}:cli:claude-code",
        _id("key"),
        "toolu_01A09q90qw90lq917835lq9",
        "/home/ada/projects/engine/src/difference/engine_token_reader.py",
        "~/.config/outrider/connection.json",
        "C:\\Users\\Ada\\AppData\\Local\\Programs\\outrider.exe",
        "file:///srv/project/tests/password_reset_test.py:42",
        "data:image/png;base64," + base64.b64encode(bytes(range(200))).decode(),
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "1.24.0-rc.1+build.5114f85",
        "detect-secrets==1.5.0",
        "Python 3.11.9, node v22.11.0, tmux 3.5a",
        "https://github.com/python/cpython/blob/v3.11.9/Lib/token.py#L42",
        "http://localhost:3000/@vite/client?t=1763674200000",
        "https://example.org:8400/api/v1/daemons?limit=20&after=msg_1",
        "git@github.com:outrider/outrider.git",
        "ssh://git@github.com/outrider/outrider.git",
        "ada@example.org",
        "supercalifragilisticexpialidocious",
        "Donaudampfschifffahrtsgesellschaftskapitaen",
        "test_a_credential_at_an_endpoint_is_refused_where_it_has_no_scope",
        "AbstractSingletonProxyFactoryBeanConfigurationProvider2",
        "Tokens: 12.5k sent, 1.2k received. Cost: $0.04 message",
        "max_tokens=4096",
        "token_count: 128000",
        "tokenizer: gpt2-medium",
        "unexpected token: expected a closing bracket",
        "def login(password: str, token: str | None = None) -> Session:",
        "api_key=os.environ['API_KEY']",
        "export TOKEN=$MY_TOKEN",
        "password=None",
        "PWD=/home/ada/project",
        "2026-11-20T22:30:00.123Z",
        "1763674272500",
        "192.168.178.20:8400",
        "2001:db8:85a3::8a2e:370:7334",
        "+49 30 1234-5678",
        "import { useToken } from '@/hooks/useToken'",
        "Basic understanding of bearer authentication",
        "sk-learn-pipelines-and-preprocessing",
        "task-7f3a9c21-retry-5",
        "fork_count_total_since_boot=7",
        "claude-sonnet-4-5-20250929",
        "gpt-4o-mini-2024-07-18",
        "-----BEGIN CERTIFICATE-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB ada@example.org",
        '│ > Try "how do I log an error?"            │',
        "cookie-parser@1.4.7",
        "HTTP/1.1 401 Unauthorized",
        *_innocent_places(),
        *_innocent_names(),
        *_innocent_tokens(),
    ]


def _innocent_places() -> list[str]:
    """Return URLs, headers, commands and files without a secret."""
    return [
        "postgres://localhost/app",
        "postgres://ada@db/app",
        "postgres://db:5432/app",
        "postgres://db:5432/app?user=ada@example.org",
        "redis://cache:6379/0",
        "https://example.org:8443/a/b@2.0.0",
        "https://unpkg.com/react@18.2.0/umd/react.js",
        "https://medium.com/@ada/notes-1843",
        "http://localhost:{port}/@fs/srv",
        "http://$HOST:$PORT/x@y",
        "https://[::1]:8400/x@y",
        "mailto:ada@example.org",
        "registry:5000/app@sha256:9f86d081884c7d659a2feaa0c55ad015",
        "jdbc:postgresql://db:5432/app",
        "https://discord.com/api/webhooks",
        "https://hooks.slack.com/services/",
        "@scope/pkg@1.2.3",
        "git+https://github.com/o/r.git@v1.2.3#egg=r",
        "s3://bucket/key=1/part-0000",
        "12:34:56:789:000",
        "a:b:c:d:e",
        "lint.py:10:5:E501:line",
        "192.168.0.1:8080:80:tcp:x y",
        "arn:aws:iam::123456789012:role/deploy",
        "PATH=/usr/local/bin:/usr/bin:/bin:/opt/x:/opt/y",
        "fe80:0:0:0:1:2:3:4",
        "root:x:0:0:root:/root:/bin/bash",
        "urn:ietf:params:oauth:grant",
        "Authorization: Bearer <token>",
        "authorization: required",
        "Authorization: $TOKEN",
        'WWW-Authenticate: Basic realm="x"',
        "basic authentication with bearer tokens",
        "mkdir -p /srv/app",
        "docker run -p 8080:80 nginx",
        "ssh -p 2222 host",
        "ssh -p2222 host",
        "cp -pr a b",
        "gcc -pedantic -pthread a.c",
        "psql -p 5432 -U ada",
        "nmap -p1-65535 host",
        "mysql -P 3306 -u root -p app",
        "mysql -uroot -p",
        "git log -p",
        "patch -p1",
        "ps -p 1234",
        "redis-cli -p 6379 ping",
        "curl -u ada https://x",
        "curl -b cookies.txt https://x",
        "ldapsearch -x -W",
        "unzip -p a.zip",
        "docker login ghcr.io",
        "vault login -method=oidc",
        "echo done | sudo tee out",
        "htpasswd -c file ada",
        "7z x archive.7z",
        "tar -xpf a.tar",
        "docker compose -p project up",
        "set -x",
        "set -euo pipefail",
        "set -x TOKEN $OTHER",
        "set -gx EDITOR vim",
        "ENV PATH /usr/bin",
        "git config user.name Ada",
        "env | sort",
        "the login page password field",
        "login and password are required",
        "machine learning",
        "default\nlogin\npassword",
        "SELECT password FROM users",
        "password VARCHAR(255) NOT NULL",
        "ALTER USER ada PASSWORD NULL",
        "IDENTIFIED BY PASSWORD",
        "password_hash text,",
        "<password></password>",
        "<password-policy>strict</password-policy>",
        "<token/>",
        '<passwordPolicy minLength="8"/>',
        "<key>CFBundleName</key><string>App</string>",
        '<add key="Timeout" value="30" />',
        '<xs:element name="password" type="xs:string"/>',
        '<input type="password" name="password" id="pw">',
        "<password>${DB_PASSWORD}</password>",
        '<label for="password">Password</label>',
        "<td>password</td><td>The new one</td>",
        "<title>Forgot password?</title>",
        "List<Token> tokens = new ArrayList<>();",
    ]


def _innocent_names() -> list[str]:
    """Return names of secrets without one, and what is about a secret."""
    return [
        "secrets:\n  - db\n  - cache",
        "secret:\n  secretName: db-credentials",
        "password:\n  type: string\n  minLength: 8",
        "tokens:\n  max: 4096",
        "description: |\n  some text\n  more",
        "- name: LOG_LEVEL\n  value: debug",
        '{"name": "password", "type": "string", "required": true}',
        '"auth": true',
        '"auth": null',
        '"auth": "none"',
        '"auth": "oauth2"',
        "auth: basic",
        "valueFrom:\n  secretKeyRef:\n    name: db",
        '"password": {"type": "string"}',
        '"token_type": "Bearer", "expires_in": 3600',
        "grant_type=password&username=ada",
        "| password | string | required |",
        "password is required",
        "the token is invalid",
        "The password is not stored",
        "Password must be at least 10 characters",
        "the secret is out",
        "Passwort vergessen?",
        "set the password to a new value",
        "if token is None:",
        "token = tokens[0]",
        "token = get_token()",
        "const token = await getToken()",
        "password = getpass.getpass()",
        "password = config.password",
        "login(password=password)",
        "api_key=settings.api_key,",
        "token: Token",
        "password?: string;",
        "token: string | null",
        "let token: String = String::new();",
        "def f(self, secret: bytes = b'') -> None:",
        "assert token == expected",
        "password != other",
        "token => token.id",
        "(token) => token.length",
        "--password-file /run/secrets/db",
        "password_file=/run/secrets/db",
        "--token-ttl 3600",
        "SECRET_NAME=prod/db",
        "--secret id=npmrc,src=.npmrc",
        "token_url: https://x/token",
        "pass: 12 fail: 3",
        "PASS: test_login",
        "pass=12 fail=0",
        "passed=12",
        "pin = 17",
        "tokens/s: 45.2",
        "input_tokens=1200 output_tokens=340",
        "total tokens: 12,345",
        "keyboard=us",
        "monkey=banana",
        "author=Ada",
        "authority: example.org",
        "key: value",
        "session: 3 of 5",
        "sessionStorage.clear()",
        "cookies: 3",
        "tokenize=porter",
        "password=********",
        "password=<redacted>",
        "password=xxxxxxxx",
        "api_key={{ api_key }}",
        "password: ${{ secrets.DB_PASSWORD }}",
        "token=%s",
        "password=$(cat file)",
        "SECRET=%SECRET%",
        "password: ''",
        'password=""',
        "password: []",
    ]


def _innocent_tokens() -> list[str]:
    """Return what begins as a token does, or is as long as one."""
    return [
        "sk-circle-fade-dot-spinner-2",
        "figd_",
        "re_compile_all_patterns_2_times",
        "hf_hub_download_v2",
        "fw_version_2_1_stable_release",
        "key-value-store-with-32-characters",
        "sk_buff_head_init_v2",
        "npm_config_user_agent",
        "npm_lifecycle_event2_and_more_of_it",
        "s.replace",
        "st.session_state",
        "op.shape",
        "1//2 == 0",
        "my-app-7d4b9c6f5d-x2x9z",
        "pul-request-template-number-1",
        "glpat-",
        "ghp_",
        "AKIA",
        "ATATT3",
        "pat-na1-",
        "dapi",
        "hvs.",
        "sess-2-of-10",
        "fc-cache-fv",
        "test_ghp_token_is_redacted_1",
        "xoxb-",
        "lin_api_",
        "eyJ",
        "eyJub3QiOiJhIGp3dCJ9",
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQDJ0 ada@laptop",
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        'W/"1f-2jmj7l5rSw0yVb/vlWAYkK/YBwk"',
        "layer 4f4fb700ef54461cfa02571ae0db9a0dc1e0cdb5577484a6d75e68dc38e8acc1",
        "build-20261120T223000Z-9f86d08",
        "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",
        "release-2026.11.20-linux-x86_64-musl",
        "claude-opus-4-20250514",
        "node_modules/.pnpm/a@1.0.0_b@2.0.0",
        "0123456789abcdef0123456789abcdef",
        "00000000-0000-0000-0000-000000000000",
        "1234567890123456789012345678901234567890",
        "$1 and $2b are groups",
        "price: $6$",
        "\\e[a-z]+",
        "0x8f3a9c21",
        "α-β-γ-δ",
    ]


def unfinished() -> list[str]:
    """Return lines whose secret is missing: what follows on another line is none."""
    return [
        "Password:",
        "Password (again):",
        "[sudo] password for ada:",
        "password =",
        "password: |",
        "password: >-",
        "Enter passphrase for key '/home/ada/.ssh/id_ed25519':",
        "Cookie: ",
        "Authorization:",
        "api_key: ",
        "export TOKEN=",
        "curl -u",
        "mysql -p",
        "-----BEGIN",
    ]
