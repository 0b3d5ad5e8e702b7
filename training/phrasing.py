"""How people wrap what they ask, and the short things an assistant says."""

# A command in the imperative, without its full stop.
COMMANDS = [
    "{}.", "{}", "{}", "Please {}.", "please {}", "Can you {}?", "could you {}", "Could you please {}?", "I need you to {}.",
    "I want you to {}.", "I'd like you to {}, please.", "Hey, {}.", "hey can you {}", "Would you {}?", "Go ahead and {}.",
    "Hi! Please {}. Thanks!", "Help me {}.", "{} please", "{}, thanks.", "Would you mind helping me? I have to {}.",
    "Let's {}.", "I have to {}.", "Now {}.", "{} for me.", "Next step: {}.", "ok, {}", "My boss wants me to {}.",
    "Is it possible to {}?", "quick one: {}", "Before I forget: {}.", "We should {}.", "Time to {}!", "It would be great if you could {}.",
    "Sorry to bother you, but could you {}?", "I'm in a hurry, {}!", "As discussed, {}.", "Do me a favour and {}.", "need to {}",
    "I forgot, {} please.", "Assistant, {}.",
]
# A whole sentence.
BEFORE = [
    "", "", "", "", "", "", "Hey, ", "Hi! ", "Hello. ", "Quick question: ", "Just curious: ", "Good morning. ", "Tell me: ", "Okay, ", "So, ",
    "I'm planning my week. ", "One more thing: ", "My friend asked me this. ", "Sorry, ", "For my notes: ", "Random question. ", "Alright: ", "hmm, ",
]
AFTER = ["", "", "", "", "", "", "", " Thanks!", " Thank you.", " Please check.", " I need to know.", " Be quick, please.", " thx", " Please be brief."]
# Two requests in one message.
JOINTS = [
    "{} and {}", "{}, and {}", "{} and also {}", "{}, then {}", "{}; {}", "{} and then {}", "{}. Also, {}", "{}. After that, {}", "{} and while you're at it {}",
    "two things: {} and {}", "first {}, then {}", "{} as well as {}", "{} + {}",
]
SYSTEMS = [
    "You are a helpful assistant.", "You are a helpful assistant with access to tools.", "Be brief.", "You are a concise assistant. Call a tool when one fits.",
    "You are a function calling model.", "Use the tools below when they help.", "You help the staff of a small company.", "You are an agent in a chat application. Answer in English.",
    "Today is Monday.", "Only call a tool if it fits the request.", "You are Iris, a home assistant.", "Never guess: use the tools.", "You are an AI assistant. Answer shortly.",
    "You are polite and precise.", "The user is in a hurry.", "You are a support agent.", "Answer the question. You may call one or more of these tools.",
    "You are an expert assistant who calls tools and reads their results.", "Current date: 2025-06-01.", "You are a pirate who likes tools.",
]
NO_TOOL = ["None of the available tools can do that.", "Sorry, I have no tool for that."]
TALK = [
    ("Hello!", "Hello! How can I help?"), ("Hi", "Hello! How can I help?"), ("hey there", "Hello! How can I help?"), ("Good morning!", "Good morning! How can I help?"),
    ("Good evening", "Good evening! How can I help?"), ("Thanks!", "You're welcome!"), ("Thank you so much", "You're welcome!"), ("thx a lot", "You're welcome!"), ("Great, thank you.", "You're welcome!"),
    ("Bye", "Goodbye!"), ("Goodbye!", "Goodbye!"), ("See you later", "Goodbye!"), ("How are you?", "I'm fine, thank you. How can I help?"), ("how are you doing today", "I'm fine, thank you. How can I help?"),
    ("Who are you?", "I am a small assistant that calls tools."), ("What are you?", "I am a small assistant that calls tools."), ("What can you do?", "I can call the tools I am given."), ("Are you a robot?", "I am a small assistant that calls tools."),
    ("What is your name?", "I am a small assistant that calls tools."), ("Nice to meet you.", "Nice to meet you too! How can I help?"), ("ok", "Okay. How can I help?"), ("Never mind.", "Okay."), ("Forget it", "Okay."), ("Cool!", "Glad to hear that."), ("That's great news", "Glad to hear that."),
    ("I'm bored", "I'm sorry to hear that. How can I help?"), ("I feel sad today", "I'm sorry to hear that. How can I help?"), ("What is the opposite of hot?", "Cold."), ("What colour is the sky?", "Blue."), ("How many days are in a week?", "Seven."), ("What is the capital of France?", "Paris."),
    ("Say hello", "Hello!"), ("Say yes", "Yes."), ("What comes after Monday?", "Tuesday."), ("Is water wet?", "Yes."), ("How many legs does a dog have?", "Four."), ("What is the first month of the year?", "January."), ("yes", "Okay."), ("no thanks", "Okay."), ("Well done!", "Thank you!"), ("You are very helpful", "Thank you!"), ("I love you", "Thank you!"),
    ("Write a haiku about spring.", "Soft rain on the hill, a small bird tries out its song, the old tree listens."), ("Tell me a joke.", "Why did the tool cross the road? It was called."),
]
FOLLOW = ["And {}?", "What about {}?", "and {}", "Now {}.", "The same for {}, please.", "How about {}?", "Also for {}.", "ok and {}?"]
