"""The values that questions mention: word lists, and generators of what no list can hold.

A pool gives pairs (what the question says, what the argument holds). Names of things are often replaced by invented
ones, so that a value is copied from the question and never recalled.
"""

import datetime
import string

LISTS = {
    "city": "Beijing|Paris|London|Tokyo|New York|San Francisco|Berlin|Madrid|Rome|Oslo|Cairo|Lima|Delhi|Mumbai|Sydney|Toronto|Chicago|Boston|Seattle|Moscow|Vienna|Prague|Lisbon|Dublin|Athens|Seoul|Shanghai|Singapore|Bangkok|Dubai|Istanbul|Nairobi|Lagos|São Paulo|Buenos Aires|Mexico City|Los Angeles|Hong Kong|Cape Town|Rio de Janeiro|Zürich|Köln|Amsterdam|Brussels|Warsaw|Kyiv|Helsinki|Stockholm|Austin|Denver|Miami|Hanoi|Manila|Jakarta|Osaka|Munich|Montreal|Melbourne|Santa Fe|Salt Lake City|北京|東京|Москва",
    "country": "France|Germany|Japan|China|Brazil|India|Canada|Kenya|Norway|Spain|Italy|Peru|Egypt|Mexico|South Africa|New Zealand|Poland|Turkey|Vietnam|Chile|Ghana|Finland|Greece|Iceland",
    "person": "Alice|Bob|Carol|David|Emma|Farid|Grace|Henry|Ines|Jonas|Keiko|Liam|Maria|Noah|Olga|Priya|Quentin|Rosa|Sam|Tomas|Uma|Victor|Wei|Yusuf|Zoe|Anna Schmidt|John Smith|Mary Jones|Li Na|José García|Dr. Brown|Mrs. Lee|Peter O'Neill|my mother|Bob Marley|Aisha Khan",
    "given": "Alice|Bob|Carla|David|Emma|Farid|Grace|Henry|Ines|Jonas|Keiko|Liam|Maria|Noah|Olga|Priya|Quentin|Rosa|Sam|Tomás|Uma|Victor|Wei|Yusuf|Zoe|Björn|Chiara|Dmitry|Élodie|Fatima|Gareth|Hana|Ivan|Joan|Karim|Lotte|Mehmet|Nadia|Owen|Paloma|Rahul|Sofia|Tariq|Vera|Wanda|Xenia",
    "family": "Schmidt|Smith|Jones|Na|Silva|Okoye|Garcia|Rossi|Novak|Tanaka|Müller|O'Brien|Dubois|Kim|Nguyen|Larsen|Hughes|Moreau|Costa|Papadopoulos|Haile|Weber|Santos|Ivanova|Brown|Fischer|Sato|Khan|van Dijk|de Souza|Nowak|Jensen|Patel|Horvat|Berg|Lindgren|Castillo|Abe|Marsh|Whitaker",
    "food": "pizza|sushi|ramen|burger|lasagna|green curry|falafel|tacos|pancakes|risotto|tomato soup|fried rice|salad|dumplings|pad thai|paella|apple pie|chicken soup|goulash|hummus",
    "ingredient": "flour|sugar|butter|eggs|milk|rice|garlic|onions|olive oil|basil|cheese|chicken|beef|tofu|lemon|salt|honey|mushrooms|carrots|spinach|yeast|cream",
    "animal": "dog|cat|horse|rabbit|parrot|goldfish|hamster|cow|sheep|goat|turtle|penguin|tiger|owl|dolphin",
    "colour": "red|blue|green|yellow|purple|orange|white|black|pink|turquoise|dark grey|sky blue",
    "language": "English|French|German|Spanish|Chinese|Japanese|Russian|Arabic|Hindi|Italian|Korean|Portuguese|Dutch|Swahili|Polish|Greek",
    "codelang": "Python|Rust|JavaScript|Go|Java|C++|Ruby|Haskell|Swift|TypeScript|SQL|Bash",
    "currency": "USD|EUR|GBP|JPY|CNY|CHF|CAD|AUD|INR|BRL|SEK|KRW",
    "ticker": "AAPL|MSFT|GOOG|TSLA|AMZN|NVDA|IBM|INTC|NFLX|SAP|ORCL|AMD|BA|KO|DIS",
    "company": "Apple|Microsoft|Siemens|Toyota|Acme Corp|Globex|Initech|Nestlé|Samsung|IKEA|Airbus|Umbrella Inc|Blue Ocean Ltd|Northwind",
    "song": "Yesterday|Imagine|Bohemian Rhapsody|Clair de Lune|Billie Jean|Hey Jude|Africa|Wonderwall|La Vie en rose|Smooth|Thriller|Hotel California|Für Elise",
    "artist": "Mozart|The Beatles|Adele|Miles Davis|Queen|Drake|Bach|Daft Punk|Nina Simone|Radiohead|Björk|Shakira|Coldplay",
    "genre": "jazz|rock|classical|pop|hip hop|folk|techno|blues|metal|country|ambient",
    "movie": "Inception|Titanic|The Matrix|Alien|Casablanca|Amélie|Parasite|Jaws|Spirited Away|Toy Story|Heat|The Godfather|Up",
    "moviegenre": "comedy|drama|horror|thriller|romance|documentary|science fiction|western|animation",
    "book": "Dune|Emma|Dracula|The Hobbit|1984|War and Peace|Moby-Dick|Hamlet|Ulysses|The Trial|Don Quixote|Beloved|The Stranger",
    "author": "Jane Austen|George Orwell|Franz Kafka|Toni Morrison|Leo Tolstoy|Haruki Murakami|Agatha Christie|Mark Twain|Virginia Woolf|Ursula Le Guin",
    "room": "kitchen|bedroom|living room|bathroom|office|garage|hallway|basement|nursery|attic|dining room|guest room",
    "device": "lamp|fan|heater|speaker|television|coffee machine|air purifier|dishwasher|projector|humidifier|radio",
    "topic": "climate change|electric cars|football|artificial intelligence|space travel|the elections|healthy food|inflation|black holes|renewable energy|quantum computing|gardening|ancient Rome|photography|volcanoes|chess openings|tax law|coffee",
    "task": "buy milk|call the bank|water the plants|pay the rent|finish the report|walk the dog|book the dentist|clean the garage|send the invoice|renew my passport|take out the trash|pick up the kids|update the slides|fix the bike|do laundry|take my medicine",
    "event": "team meeting|dentist appointment|lunch with Anna|yoga class|project review|birthday party|board meeting|job interview|parent evening|piano lesson|stand-up|budget call|wedding rehearsal|doctor's visit",
    "product": "laptop|running shoes|desk lamp|backpack|headphones|coffee grinder|office chair|phone case|water bottle|keyboard|monitor|winter jacket|tent|blender|yoga mat|sunglasses",
    "symptom": "headache|fever|sore throat|back pain|cough|dizziness|rash|nausea|stomach ache|fatigue",
    "medicine": "ibuprofen|aspirin|paracetamol|insulin|amoxicillin|vitamin D|melatonin|cetirizine",
    "sport": "football|tennis|basketball|swimming|running|cycling|yoga|boxing|rowing|climbing|golf|volleyball",
    "team": "Arsenal|Real Madrid|the Lakers|Bayern Munich|the Yankees|Ajax|Juventus|the Bulls|Celtic|Boca Juniors",
    "job": "nurse|software engineer|carpenter|teacher|accountant|data analyst|electrician|chef|pilot|designer|plumber",
    "subject": "mathematics|history|physics|biology|chemistry|geography|literature|economics|philosophy|music",
    "word": "serendipity|gratitude|apple|bridge|freedom|river|happy|quick|garden|ephemeral|window|courage|bright|table",
    "phrase": "good morning|where is the station|thank you very much|how much is it|I love you|see you tomorrow|the bill, please|happy birthday|I am lost|have a nice day|good night",
    "sentence": "I'll be ten minutes late|The meeting is moved to Monday|Don't forget the keys|Happy birthday!|Can you call me back?|The package has arrived|See you at 8|We won the game!|Dinner is ready|Please review my draft|Let's meet at the café|I'm on my way|Thanks for your help|The server is down again|Running late, sorry|你好，明天见|Ça marche, merci|Привет, как дела?|Bring \"the red folder\", please|It's 50% off today|Total: 30 € (paid)|C:\\temp is full|ok 👍|Where are you?\nI'm waiting outside|First line\nSecond line|Tabs & spaces <matter>|He said \"no\"|¿Vienes mañana?",
    "title": 'Shopping list|Meeting notes|Ideas for the garden|Trip to Rome|Weekly report|Quarterly plan|Recipe: soup|To do|Lessons learned|Project "Falcon"|Café visits|Budget 2025|Draft v2|Reading list|Año nuevo',
    "branch": "main|develop|feature/login|fix-typo|release-2.1|hotfix/cache|test/ci|gh-pages",
    "repo": "callisto|web-app|data-tools|infra|my-site|parser|docs|mobile-client|billing-service",
    "service": "nginx|postgres|redis|auth-service|billing|search-api|mailer|gateway|scheduler|cache",
    "server": "web-01|db-3|prod-east|staging|cache-2|worker-17|edge-fra|alpha|bastion",
    "filename": "report.pdf|notes.txt|budget.xlsx|photo.jpg|main.rs|README.md|data.csv|config.toml|song.mp3|backup.tar.gz|slides.pptx|résumé.docx|my file.txt",
    "path": "/etc/hosts|/var/log/syslog|/home/anna/notes.md|src/main.rs|C:\\Users\\bob\\todo.txt|/tmp/out.json|docs/guide.md|~/pictures/cat.png|/srv/www/index.html|D:\\data\\2024",
    "folder": "/home/bob|Documents|/var/log|src|Downloads|photos/2023|/etc|build|D:\\archive",
    "table": "users|orders|customers|invoices|products|events|sessions|payments|employees|logs",
    "query": "SELECT * FROM users|SELECT name FROM customers WHERE age > 30|SELECT count(*) FROM orders|DELETE FROM logs WHERE day < 10|SELECT id, total FROM invoices ORDER BY total|SELECT * FROM t WHERE name = 'Bob'",
    "command": 'ls -la|git status|make test|df -h|cargo build --release|uptime|ps aux|echo "hi"|npm install|du -sh .',
    "regex": "^a.*z$|\\d{4}|[A-Z]+|foo|bar|\\w+@\\w+\\.com|TODO|error: .*",
    "expression": "2 + 2|15 * 7|sqrt(144)|(3 + 4) * 5|100 / 8|2^10|12.5 * 4|sin(0.5)|7! / 5!|1000 - 387|3x + 5 = 20|log(100)|45% of 200",
    "unitlen": "miles|kilometers|meters|feet|inches|centimeters|yards",
    "planet": "Mars|Venus|Jupiter|Saturn|Mercury|Neptune|the Moon|Titan|Europa",
    "element": "gold|iron|oxygen|carbon|helium|sodium|lead|neon|copper|uranium",
    "plant": "basil|fern|cactus|orchid|rose bush|monstera|tomato plant|olive tree|lavender|bonsai",
    "street": "12 Main Street|5 Oak Avenue|221B Baker Street|77 Sunset Blvd|Rue de Rivoli 8|Hauptstr. 3|1600 Penn Ave|14 Elm Road|9 King's Lane",
    "place": "the Eiffel Tower|the airport|Central Park|the train station|my office|the museum|Times Square|Heathrow|the beach|Union Station|the library|downtown|the stadium",
    "poi": "restaurant|pharmacy|gas station|hotel|supermarket|café|hospital|bakery|bank|parking lot|gym|bookshop|ATM",
    "cuisine": "Italian|Thai|Mexican|Indian|Japanese|French|Greek|Vietnamese|Lebanese|Korean|vegan",
    "allergy": "nuts|gluten|dairy|shellfish|soy|eggs",
    "airline": "Lufthansa|KLM|Delta|Qantas|Emirates|Air France|United|ANA|Iberia",
    "tag": "work|home|urgent|ideas|travel|family|health|money|later|school|python|fun",
    "hobby": "painting|hiking|knitting|chess|fishing|pottery|birdwatching|surfing",
    "disease": "diabetes|asthma|malaria|influenza|migraine|anemia",
    "gift": "a book|flowers|a watch|chocolate|a board game|a scarf|wine",
    "goal": "lose weight|run a marathon|read more|sleep better|learn Spanish|save money|drink more water",
    "zone": "UTC|CET|EST|PST|Asia/Tokyo|Europe/Berlin|America/New_York|GMT+2|IST",
    "weekday": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "month": "January|February|March|April|May|June|July|August|September|October|November|December",
    "sky": "sunny|cloudy|rainy|snowy|windy|foggy|clear|stormy",
    "mood": "happy|sad|calm|energetic|romantic|focused|angry",
    "model": "Toyota Corolla|Tesla Model 3|VW Golf|Ford Focus|Honda Civic|BMW X5|Fiat 500",
    "paint": "Mona Lisa|Starry Night|Guernica|The Scream|Las Meninas",
    "game": "chess|Minecraft|Tetris|poker|Zelda|Monopoly|sudoku|Pac-Man",
    "instrument": "piano|guitar|violin|drums|flute|cello|trumpet",
    "material": "wood|steel|glass|cotton|concrete|plastic|leather|copper",
    "channel": "general|random|dev-team|marketing|support|announcements|ops|design",
    "label": "bug|feature|question|docs|wontfix|p1|security|refactor",
    "environment": "production|staging|development|test|qa",
    "hashtag": "#sunset|#nofilter|#rustlang|#tbt|#vegan|#run|#art",
    "key": "theme|language|timeout|max_retries|log_level|cache_size|region|font|volume|api_url",
}
SHAPES = {
    "lower": "food ingredient animal colour product topic task event device room genre hobby tag plant word gift goal label channel service server table repo branch poi symptom medicine material instrument game key mood job subject sport".split(),
    "title": "city country person company song artist movie book author team place title planet street model airline language paint".split(),
}
SHAPE = {name: shape for shape, names in SHAPES.items() for name in names}
WORDS = {
    1: "one",
    2: "two",
    3: "three",
    4: "four",
    5: "five",
    6: "six",
    7: "seven",
    8: "eight",
    9: "nine",
    10: "ten",
    12: "twelve",
}

ONSET = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr kr pl pr sh sk sl st str th tr qu".split()
VOWEL = "a e i o u ai ea ie oo ou y".split()
CODA = ["", "", "", "n", "r", "s", "l", "t", "m", "x", "nd", "rk", "st", "lm", "ng", "ck", "th"]


def invented(rng, syllables=None):
    """A word that nobody has seen."""
    count = syllables or rng.choice((1, 2, 2, 2, 3))
    return "".join(rng.choice(ONSET) + rng.choice(VOWEL) + rng.choice(CODA) for _ in range(count))


def identifier(rng):
    kind = rng.randrange(5)
    digits = "".join(rng.choice(string.digits) for _ in range(rng.randint(3, 6)))
    letters = "".join(rng.choice(string.ascii_uppercase) for _ in range(rng.randint(1, 3)))
    if kind == 0:
        return f"{letters}-{digits}"
    if kind == 1:
        return f"{letters}{digits}"
    if kind == 2:
        return digits
    if kind == 3:
        return f"{invented(rng, 1)}_{digits}"
    return "".join(rng.choice("0123456789abcdef") for _ in range(rng.randint(6, 10)))


def name_of(rng, kind):
    """A value of pool `kind`, invented four times in ten."""
    shape = SHAPE.get(kind)
    if shape and rng.random() < 0.4:
        if shape == "title":
            parts = [invented(rng).capitalize() for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
            return " ".join(parts)
        first = invented(rng)
        return first if rng.random() < 0.6 else f"{first} {rng.choice(LISTS[kind].split('|'))}"
    if kind == "sentence" and rng.random() < 0.4:
        words = [rng.choice(COMMON) if rng.random() < 0.7 else invented(rng) for _ in range(rng.randint(2, 7))]
        text = " ".join(words)
        return rng.choice((text, text.capitalize(), text.capitalize() + ".", text + "!"))
    return rng.choice(LISTS[kind].split("|"))


COMMON = "the a my your this please we I is are will new old big late early now soon here there and or with for from about meet call send bring see buy home work room door car train water time plan report team list idea price green blue three open close start stop never always".split()


def date(rng):
    kind = rng.randrange(12)
    day, month = rng.randint(1, 28), rng.randint(1, 12)
    if kind < 3:
        plain = rng.choice(
            "tomorrow|today|tonight|this weekend|next week|next Monday|next Friday|this evening|the day after tomorrow|next month|tomorrow morning|yesterday".split(
                "|"
            )
        )
        return plain, plain
    if kind < 5:
        name = rng.choice(LISTS["weekday"].split("|"))
        return (f"on {name}", name)
    if kind < 9:
        iso = f"{rng.randint(2019, 2031)}-{month:02}-{day:02}"
        return f"on {iso}", iso
    name = LISTS["month"].split("|")[month - 1]
    text = rng.choice((f"{name} {day}", f"{day} {name}", f"{name} {day}th", f"{name} {day}, {rng.randint(2020, 2030)}"))
    return f"on {text}", text


def clock(rng):
    hour, minute = rng.randint(1, 12), rng.choice((0, 0, 15, 30, 45, 5, 20))
    text = rng.choice(
        (
            f"{hour}:{minute:02}",
            f"{hour + 8:02}:{minute:02}",
            f"{hour} {rng.choice(('am', 'pm'))}",
            f"{hour}:{minute:02} {rng.choice(('AM', 'PM'))}",
            f"{hour}{rng.choice(('am', 'pm'))}",
            "noon",
        )
    )
    return text


def integer(rng, low, high):
    if high - low > 500:
        high = low + int((high - low) * 10 ** -rng.uniform(0, 3)) + 5
    value = rng.randint(low, high)
    if value in WORDS and rng.random() < 0.15:
        return WORDS[value], value
    if value >= 1000 and low < 1000 and rng.random() < 0.1:
        return f"{value:,}", value
    return str(value), value


def number(rng, low, high):
    if rng.random() < 0.35:
        return integer(rng, int(low), int(high))
    value = round(rng.uniform(low, high), rng.choice((1, 1, 2)))
    if value == int(value):
        value = int(value)
    return str(value), value


def email(rng):
    user = rng.choice((invented(rng), rng.choice("anna bob info sales j.doe maria_k wei support team".split())))
    return f"{user}@{rng.choice((invented(rng), 'example', 'mail', 'acme'))}.{rng.choice('com org net de io'.split())}"


def url(rng):
    host = rng.choice(
        (
            f"{invented(rng)}.{rng.choice('com org net io'.split())}",
            "example.com",
            "www.example.org",
            f"docs.{invented(rng)}.dev",
        )
    )
    path = rng.choice(
        ("", "", "/", f"/{invented(rng)}", f"/{invented(rng)}/{rng.randint(1, 999)}", f"/search?q={invented(rng)}")
    )
    return f"{rng.choice(('https', 'https', 'http'))}://{host}{path}"


def phone(rng):
    digits = lambda count: "".join(rng.choice(string.digits) for _ in range(count))
    return rng.choice(
        (
            f"+{digits(2)} {digits(3)} {digits(4)}",
            f"{digits(3)}-{digits(4)}",
            f"{digits(3)}-{digits(3)}-{digits(4)}",
            f"0{digits(9)}",
        )
    )


def code(rng):
    a, b, n = invented(rng, 1), invented(rng, 1), rng.randint(0, 99)
    return rng.choice(
        (
            f"print({a})",
            f"let {a} = {n};",
            f'print("{a}")',
            f"def {a}({b}): return {b} + {n}",
            f"for i in range({n}): {a}(i)",
            f"{a}.{b}({n})",
            f"if {a} > {n}:\n    {b}()",
            f"fn {a}() -> u8 {{ {n} }}",
            f"x = ['{a}', '{b}']",
        )
    )


def moment(rng):
    day = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=rng.randrange(5 * 365 * 86400))
    return f"{day:%A, %Y-%m-%d %H:%M:%S} {rng.choice(('UTC', 'CET', 'CEST', 'EST', 'PST', 'JST', '+08', '-03'))}"


def arithmetic(rng):
    """(surface, value): `12 times 7`, `12 * 7`."""
    value = lambda: str(rng.choice((rng.randint(2, 20), rng.randint(2, 999), round(rng.uniform(0.5, 99), 1))))
    sign, word = rng.choice((("*", "times"), ("+", "plus"), ("-", "minus"), ("/", "divided by"), ("*", "times")))
    a, b = value(), value()
    if rng.random() < 0.25:
        return f"{a} {word} {b}", f"{a} {sign} {b}"
    space = rng.choice((" ", " ", ""))
    plain = f"{a}{space}{sign}{space}{b}"
    if rng.random() < 0.25:
        c, more = value(), rng.choice("+-*/")
        plain = rng.choice(
            (
                f"({plain}){space}{more}{space}{c}",
                f"{plain}{space}{more}{space}{c}",
                f"{c}{space}{more}{space}({plain})",
            )
        )
    return plain, plain


MAKERS = {
    "moment": moment,
    "id": identifier,
    "time": clock,
    "email": email,
    "url": url,
    "phone": phone,
    "code": code,
    "zip": lambda rng: f"{rng.randint(10000, 99999)}",
    "flight": lambda rng: rng.choice(("LH", "BA", "UA", "AF", "DL", "KL", "QF")) + str(rng.randint(10, 9999)),
    "version": lambda rng: f"{rng.choice(('', '', 'v'))}{rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 9)}",
    "ip": lambda rng: ".".join(str(rng.randint(1, 254)) for _ in range(4)),
    "coord": lambda rng: f"{rng.uniform(-90, 90):.2f}, {rng.uniform(-180, 180):.2f}",
    "invented": invented,
    "user": lambda rng: rng.choice(
        (
            invented(rng),
            f"{invented(rng)}{rng.randint(1, 99)}",
            f"{invented(rng, 1)}_{invented(rng, 1)}",
            "admin",
            "guest",
        )
    ),
    "color": lambda rng: f"#{rng.randrange(1 << 24):06x}",
}


def draw(rng, kind):
    """(surface, value) of a pool written as in the tables: `city`, `int(1,9)`, `num(0,5)`, `date`, `a|b|c`."""
    if "|" in kind:
        value = rng.choice(kind.split("|"))
        return value.replace("_", " "), value
    if kind.startswith("int("):
        low, high = map(int, kind[4:-1].split(","))
        return integer(rng, low, high)
    if kind.startswith("num("):
        low, high = map(float, kind[4:-1].split(","))
        return number(rng, low, high)
    if kind == "date":
        return date(rng)
    if kind == "arithmetic":
        return arithmetic(rng)
    if kind in MAKERS:
        text = MAKERS[kind](rng)
        return text, text
    text = name_of(rng, kind)
    return text, text
